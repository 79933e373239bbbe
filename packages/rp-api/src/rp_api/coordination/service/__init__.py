"""The stand-alone hub (`rp hub`), which serves the sessions of one user, and its clients.

Imports `hub` and `connections`.
"""
