"""Backends: launchers that stay, which are PRRTE DVMs, Flux instances and Dragon runtimes, on nodes of the pilot.

`instance_supervisor` starts and watches instances, `fleet` assigns tasks to them, `jobs` is the base of the executors
FLUX and DRAGON. May import `launching` and `processes`.
"""
