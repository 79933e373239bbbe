"""Service tasks: whether they are ready and alive, their restarts, and the registry of their instances.

Imported by the pipeline of agents that have services.
"""
