"""A pilot on a virtual clock: the agent's half of the simulator."""
