"""What applications fill in: descriptions of tasks and pilots.

They are imported from their modules, `rp_api.description.task` and `rp_api.description.pilot`.
"""
