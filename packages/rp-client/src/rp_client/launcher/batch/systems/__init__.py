"""Batch systems, a module each: writes job scripts and commands, and reads their output.

Pure functions of text, without I/O; `registry` finds the module by the scheme of a URL.
"""
