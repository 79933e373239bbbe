"""Writes traces: `tracer` records events, `rows` formats them, `virtual` writes the traces of simulations.

Imports the catalogue only to leave events out.
"""
