"""Executors run tasks: `registry` finds the executor of a platform, `base` is the base class of all executors.

`launching` plans the launch of a task, binds its ranks and writes its scripts; `processes` starts processes;
`popen`, `shell`, `simulated` and `backends` are the executors.
"""
