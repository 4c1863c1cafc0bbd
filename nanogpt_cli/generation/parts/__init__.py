"""A batch in parts, each made by one worker of a cluster and written as a file of its own."""
