"""Descriptions of tasks and pilots, which applications fill in.

They are imported from their modules, `rp_api.description.task` and `rp_api.description.pilot`.
"""
