"""Starts processes and learns of their ends, without a thread or a poll (compiled).

Imports nothing of the agent.
"""
