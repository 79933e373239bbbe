"""Resource managers find out which nodes, cores and GPUs a pilot has; `base` is their base.

`systems` has one for each batch system.
"""
