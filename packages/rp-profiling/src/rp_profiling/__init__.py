"""Traces: `write` records them, `read` reads them, `catalogue` describes all events as data.

`check` compares a trace with the catalogue, `analyse` computes figures, `draw` makes pictures and reports. Nothing is
imported here, so that a process which only writes a trace starts fast.
"""

__version__ = '2.0.0'
