"""The agent's file staging: transfers within the platform's file system, and collection of task output.

Imports only tasks.
"""
