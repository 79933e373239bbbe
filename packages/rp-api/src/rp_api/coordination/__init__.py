"""How the client and its agents reach each other: the coordination contract and its backends."""
