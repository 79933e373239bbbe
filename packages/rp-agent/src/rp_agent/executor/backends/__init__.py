"""Backends: launchers that stay, which are Flux instances, Dragon runtimes and the DVMs of `popen`, on pilot nodes.

`instance_supervisor` starts and watches instances, `fleet` assigns tasks to them, `jobs` is the base of the executors
FLUX and DRAGON. May import `launching` and `processes`.
"""
