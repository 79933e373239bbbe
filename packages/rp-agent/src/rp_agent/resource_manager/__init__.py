"""Resource managers: find the nodes, cores and GPUs of a pilot. `base` has the request and the allocation.

`systems` has one resource manager per batch system.
"""
