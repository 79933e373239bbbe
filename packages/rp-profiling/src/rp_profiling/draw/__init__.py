"""Draws pictures of a session, and writes reports and exports for trace viewers.

Imports `analyse`, `check` and `read`.
"""
