"""How the client and its agents reach each other: the coordination contract and its backends.

`connect` chooses the backend, `contract` describes what all of them keep.
"""
