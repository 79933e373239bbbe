"""Batch systems, one module each: job scripts, commands, and parsers of their output.

All functions work on text, without I/O. `registry` finds a batch system by the scheme of a URL.
"""
