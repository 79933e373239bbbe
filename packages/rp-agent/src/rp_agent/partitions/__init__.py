"""Partitions of a pilot, each with an agent: `pilot_supervisor` starts the agents and detects lost ones.

`division` divides the pilot's resources, `proxy_reporter` reports on behalf of agents that died.
"""
