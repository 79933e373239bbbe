"""Compiled code that starts processes and watches their ends, without threads or polling.

Must not import any other package of the agent.
"""
