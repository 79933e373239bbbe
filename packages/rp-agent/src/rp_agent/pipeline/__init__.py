"""The way of a task through an agent: input stagers, scheduler, executors and output stagers, joined.

`retry` decides which tasks of a lost node run again. Stands above all components.
"""
