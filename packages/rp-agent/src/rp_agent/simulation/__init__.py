"""The simulated pilot: the agent's half of the simulator, on a virtual clock.

Imports the scheduler, and the fleet of persistent launchers.
"""
