"""Traces: writing them, reading them, and the catalogue of what may stand in them.

`tracer` writes a profile, `profile` reads it back, `catalogue` holds every event as data, `shell` has the
helper scripts with which tasks record events of their own. Nothing is imported here, so that a process which
only writes a trace starts fast.
"""

__version__ = '2.0.0'
