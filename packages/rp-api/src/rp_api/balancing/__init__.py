"""How calls are divided into chunks, and shared by RAPTOR masters: decisions of applications and agents, without I/O.

It imports nothing of this distribution.
"""
