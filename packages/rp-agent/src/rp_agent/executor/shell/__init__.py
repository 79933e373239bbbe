"""The executor SHELL: one /bin/sh starts all tasks and tells how they end.

Imports `launching` and `popen`.
"""
