"""The event loop of a session: the states of pilots and tasks, waiting for them, and callbacks.

Imports no other package of rp_client.
"""
