"""The executors SIMULATED and NOOP, which start no process.

May import `launching`, for exit codes.
"""
