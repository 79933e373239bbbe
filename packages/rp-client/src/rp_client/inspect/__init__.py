"""Read access to sessions for commands: one task, pages of tasks, pilots, why they wait, calls; live or after the end.

It never takes a session over. It may import `rp_api`, and nothing of the handles and owners of sessions.
"""
