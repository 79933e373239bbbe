"""Dragon: its runtime, the executor DRAGON, and the program that starts processes in the runtime.

That program runs in the Python of Dragon: no module here may have a name that Dragon imports.
"""
