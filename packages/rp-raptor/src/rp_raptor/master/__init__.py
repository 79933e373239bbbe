"""A RAPTOR master: its `router` hands calls to workers, and hands them out again when a worker is lost.

`connections` watches the heartbeats of workers and applications and notices lost ones. Imports `wire` and `client`.
"""
