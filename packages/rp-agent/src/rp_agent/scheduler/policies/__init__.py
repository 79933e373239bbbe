"""The scheduling policies of this distribution; `find` loads the one that the platform names.

Imports `policy` and the slot map.
"""
