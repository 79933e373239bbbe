"""The executor SHELL: one persistent /bin/sh starts all tasks and reports their exit codes.

May import `launching`, `processes` and `popen`.
"""
