"""The hub of a session: the process that stores tasks, pilots and results, and forwards them.

`peers` detects lost agents and applications.
"""
