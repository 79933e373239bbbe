"""A RAPTOR master: its `router` distributes calls to workers, and distributes them again when a worker is lost.

`connections` watches the heartbeats of workers and applications and notices lost ones. Imports `wire` and `client`.
"""
