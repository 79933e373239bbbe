"""A synthetic task: consumes a known amount of time or FLOPs, threads, memory, files, MPI ranks or GPUs.

Benchmarks and experiments run it in place of an application. The program is `rp-synthetic` (`rp_agent.synthetic.cli`).
"""
