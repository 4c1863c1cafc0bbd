"""From what a user names to a place on the disk: paths, stock names and the hub."""
