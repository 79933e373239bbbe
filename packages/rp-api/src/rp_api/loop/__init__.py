"""The event loop that every process has, and threads for work that blocks.

Imports none of the other packages.
"""
