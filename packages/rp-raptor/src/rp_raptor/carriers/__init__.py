"""Carriers: an MPI job of one process on each node, which carries bytes between the managers of a worker."""
