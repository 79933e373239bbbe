"""Named environments of a pilot: built by helper processes, activated by a script that tasks source.

Imports the environment of tasks (`rp_agent.executor.launching`), the agent's calls, and the gate where tasks wait.
"""
