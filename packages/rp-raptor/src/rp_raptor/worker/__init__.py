"""The manager of a RAPTOR worker: `dispatcher` distributes calls to ranks, `rank_processes` starts and watches ranks.

The manager does not run users' code. Imports `wire`.
"""
