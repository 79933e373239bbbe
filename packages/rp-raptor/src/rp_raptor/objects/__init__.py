"""Objects that are sent to each node once: references to them, their files, and their transfer between hosts.

Imports `wire`.
"""
