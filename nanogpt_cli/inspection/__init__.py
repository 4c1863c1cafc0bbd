"""What is in a checkpoint: an overview, its tensors, their health, and how two files differ.

`overview`, `listing` and `refusal` read names, shapes and settings alone and import nothing
heavy. `statistics`, `checks`, `differences` and `fingerprints` read the weights, one at a time.
"""
