"""The event loop of every process, process handles for it, and threads for blocking work.

Imports `system`.
"""
