"""What the two halves of the simulator share: the virtual clock, models of latencies, and their contract.

The client's half (`rp_client.simulation`) has the workload, the batch queue and the binding of tasks to pilots; the
agent's half (`rp_agent.simulation`) is one pilot with its real scheduler. They meet in `contract`.
"""
