"""`rp.Executor`: functions and programs on a pilot, through the interface of `concurrent.futures`.

May import sessions, managers, and what is below them; only the command line is above it.
"""
