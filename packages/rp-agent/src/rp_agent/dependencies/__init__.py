"""Dependencies between tasks: holds tasks until those have ended that they are after, and releases or cancels them.

Imported by the agent, for the first task with dependencies.
"""
