"""Binds tasks to pilots: `component` accepts tasks, and a task scheduler (`base`) chooses the pilot of each.

Imports the pilots and tasks of rp_client.
"""
