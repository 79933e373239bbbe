"""Writes traces: `tracer` records events, `rows` formats them, `virtual` writes the traces of simulations.

Imports the catalogue only for the events that a level of detail leaves out.
"""
