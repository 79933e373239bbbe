"""The event loop that every process has, handles of processes for it, and threads for work that blocks.

Imports `system`.
"""
