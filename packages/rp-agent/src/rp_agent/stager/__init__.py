"""The agent's part of file staging: within the file system of the platform, and what a task leaves behind.

Imports nothing but tasks.
"""
