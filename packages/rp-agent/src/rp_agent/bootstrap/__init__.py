"""Starts an agent on its nodes, once stage 0 (`bootstrap_0.sh`, which the client sends) has found Python.

Imports nothing of the agent but `lineage`.
"""
