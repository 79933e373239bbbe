"""The way of pilots and tasks through the client: submission, the components that they pass, and their ends.

`task_flow` gives restartable tasks of lost pilots to other pilots. Imports the handles of pilots and tasks, schedulers,
launchers and stagers; the managers stand above.
"""
