"""The client's part of file staging: between the client's file system and the sandboxes of pilots and tasks.

Imports pilots and tasks, and `launcher` for files on other hosts.
"""
