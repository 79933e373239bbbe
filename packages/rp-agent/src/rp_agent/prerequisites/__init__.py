"""Prerequisites: what a task needs besides resources, and the gate where tasks wait until all of it is there.

Imported by the pipeline, and by the parts of the agent that provide environments and services.
"""
