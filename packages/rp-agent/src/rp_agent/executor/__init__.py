"""Runs tasks: `registry` finds the executor that the platform names, `base` is the base of all executors.

`launching` decides how a task is launched, binds its ranks and writes its scripts; `processes` starts processes;
`popen`, `shell`, `simulated` and `backends` are the executors.
"""
