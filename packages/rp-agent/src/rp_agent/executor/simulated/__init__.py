"""The executors SIMULATED and NOOP, which start no process.

Imports `launching`, for exit codes.
"""
