"""The agent's part of RAPTOR: hands tasks to masters, takes their results, and runs masters and workers as tasks.

Stands below the pipeline.
"""
