"""Coordination of the client and its agents: the contract and its backends.

`connect` selects the backend, `contract` defines the guarantees of all backends.
"""
