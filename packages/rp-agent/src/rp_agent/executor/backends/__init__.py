"""Launchers that stay: PRRTE DVMs, Flux instances and Dragon runtimes, each on its own nodes of the pilot.

`supervisor` starts and watches them, `fleet` decides which one runs a task, `jobs` is the base of the executors FLUX
and DRAGON. Imports `launching` and `processes`.
"""
