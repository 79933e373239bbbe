"""A task that does nothing useful, in a known amount: seconds or FLOPs, threads, memory, files, MPI, a GPU.

Benchmarks and experiments run it in place of an application. The program is `rp-synthetic` (`rp_agent.synthetic.cli`).
"""
