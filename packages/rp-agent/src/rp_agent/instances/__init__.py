"""Launchers that stay: PRRTE DVMs, Flux instances and Dragon runtimes, each on its own nodes of the pilot.

`division` says which nodes an instance gets, `fleet` decides which one runs a task and what follows when one fails, and
`keeper` starts and ends the processes. What is particular to a launcher stands in `prrte`, `flux` and `dragon`.
"""
