"""The stand-alone hub (`rp hub`), which serves the sessions of one user, and how clients use it.

Imports `hub` and `connections`.
"""
