"""Cached results: what identifies a task or call, the store in the base directory, and the lookups of a task manager.

May import rp_api, and of rp_client the task, its descriptions and the stagers.
"""
