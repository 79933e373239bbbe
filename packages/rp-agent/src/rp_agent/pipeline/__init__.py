"""The pipeline of an agent connects its components: input stagers, scheduler, executors and output stagers.

`retry` decides which tasks of a lost node run again. The package may import all components.
"""
