"""Binds tasks to pilots: `component` takes tasks, a task scheduler decides which pilot each goes to (`base`).

Imports the handles of pilots and tasks.
"""
