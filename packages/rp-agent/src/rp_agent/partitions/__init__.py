"""Pilots that are divided into partitions, each with an agent; `supervisor` starts them and notices lost agents.

`division` divides the pilot's resources, `proxy_reporter` reports on behalf of agents that died.
"""
