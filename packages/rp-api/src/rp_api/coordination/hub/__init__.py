"""The hub of a session: the process that stores tasks, pilots and results, and passes them on.

`watch` notices lost agents and applications.
"""
