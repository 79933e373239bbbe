"""Failures of tasks: their kinds, their records on the wire, and the exceptions that applications get.

It may import `rp_api.states`, `rp_api.system` and what these may import; agents import only the kinds and the rules.
"""
