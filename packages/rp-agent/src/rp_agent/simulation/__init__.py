"""A pilot on a virtual clock: the agent's half of the simulator.

Imports the scheduler, and the fleet of launchers that stay.
"""
