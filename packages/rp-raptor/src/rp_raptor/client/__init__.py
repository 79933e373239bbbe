"""The application's side of RAPTOR: executors, streams, and the connections that send calls to masters.

Imports `wire`.
"""
