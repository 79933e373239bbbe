"""The parts that the two halves of the simulator share: virtual clock, latency models, and the contract between them.

The client's half (`rp_client.simulation`) simulates the workload, the batch queue and the binding of tasks to pilots;
the agent's half (`rp_agent.simulation`) is one pilot with its real scheduler. They meet in `contract`.
"""
