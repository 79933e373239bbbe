"""Sub-agents on the nodes of a pilot: `node_launch` starts them, `sub_agents` watches them and detects lost ones.

Imports components, executors and stagers, and is imported by the pipeline.
"""
