"""RAPTOR: masters and workers that run Python function calls by the million.

This version holds the distribution's name, version and dependencies; its masters and workers follow.
"""

__version__ = '2.0.0'
