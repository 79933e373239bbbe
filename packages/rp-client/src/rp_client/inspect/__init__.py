"""Read access to sessions for commands: one task, pages of tasks, pilots, why they wait, calls; live or after the end.

It never takes a session over, and imports neither handles nor owners of sessions.
"""
