"""The default executor POPEN: starts tasks as child processes of the agent, watches them, and ends them.

`dvms` launches tasks into DVMs of PRRTE. May import `launching`, `processes` and `backends`.
"""
