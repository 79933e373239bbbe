"""The operating system: processes, signals, limits, addresses, and files that belong to this user alone.

Imports `rp_api.errors` and nothing else of rp-api.
"""
