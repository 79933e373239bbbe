"""The default executor POPEN: starts tasks as processes of the agent, watches them, and ends them.

Imports `launching`, `processes` and the DVMs in `backends`.
"""
