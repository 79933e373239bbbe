"""Bootstrap stages 1 and 2, which start an agent once stage 0 (`bootstrap_0.sh` of the client) has found Python.

Imports only `lineage` of the agent.
"""
