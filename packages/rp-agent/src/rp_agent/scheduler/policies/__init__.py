"""The scheduling policies of this distribution; the scheduler loads the one that the platform names.

Imports `policy` and the slot map.
"""
