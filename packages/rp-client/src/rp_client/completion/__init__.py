"""Results and futures of tasks, and waiting for several of them.

May import the engine and what is below it; tasks, managers and executors use it.
"""
