"""The operating system: processes, signals, limits, addresses, and private files.

Imports `rp_api.errors` and nothing else of rp-api.
"""
