"""The manager of a RAPTOR worker: `dispatcher` hands calls to ranks, `rank_processes` starts and watches ranks.

The manager runs no code of users. Imports `wire`.
"""
