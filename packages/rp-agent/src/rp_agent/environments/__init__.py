"""Named environments of a pilot: built by helper processes, activated by a script that tasks source.

Imports what processes of the agent share (`rp_agent.executor.launching` for the environment of tasks), and `rp_api`.
"""
