"""Partitions of a pilot, each with an agent: `pilot_supervisor` starts the agents and detects lost ones.

It reports on behalf of agents that died. `division` divides the pilot's resources.
"""
