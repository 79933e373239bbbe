"""Resource managers tell which nodes, cores and GPUs an agent may use."""
