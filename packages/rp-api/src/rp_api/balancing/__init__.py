"""The rule by which RAPTOR masters share calls and tasks: decisions of applications and agents, without I/O.

It imports nothing of this distribution.
"""
