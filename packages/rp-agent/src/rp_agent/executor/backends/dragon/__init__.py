"""Dragon backend: its runtime, the executor DRAGON, and the program that starts processes in the runtime.

The program runs in Dragon's Python: no module here may have a name that Dragon imports.
"""
