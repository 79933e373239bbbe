"""The default executor POPEN: starts tasks as child processes of the agent, watches them, and ends them.

May import `launching`, `processes` and the DVMs in `backends`.
"""
