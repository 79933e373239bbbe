"""The agent's part of RAPTOR: sends tasks to masters, receives results, and runs masters and workers as tasks.

Imported by the pipeline.
"""
