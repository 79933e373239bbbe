"""Copies of a directory on the node-local disks of a pilot: packed once, sent to all nodes, unpacked there and removed.

Knows neither environments nor sub-agents: these use it. Imports nothing else of `rp_agent` but `lineage`.
"""
