"""One file an engine: a process that holds a model and takes jobs on stdin.

Each runs in its peer's own environment, so a worker imports the standard library, that peer, and
what lies in this folder.
"""
