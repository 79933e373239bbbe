"""The pipeline of an agent connects its components: input stagers, scheduler, executors and output stagers.

Tasks come by `arrivals`. Optional `stages` take them out on their way. Some go back by `returns`, or run again
(`retry`). The package may import all components.
"""
