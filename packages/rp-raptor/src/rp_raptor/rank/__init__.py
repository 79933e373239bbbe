"""A rank of a RAPTOR worker: runs functions, methods, programs and MPI functions, and returns their results.

`worker` has the base classes of users' workers. Imports `wire` and `worker`.
"""
