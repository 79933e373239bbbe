"""The event-loop thread of a session; the states of pilots and tasks, waiting for them, and callbacks.

Imports none of the other packages.
"""
