"""The flow of pilots and tasks through the client: submission, components, final states, restarts on other pilots.

Imports pilots and tasks, schedulers, launchers and stagers, but not the managers.
"""
