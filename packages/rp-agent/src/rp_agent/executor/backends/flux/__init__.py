"""Flux backend: its instances, the executor FLUX, and the program that submits tasks as Flux jobs.

The program runs in Flux's Python: no module here may have a name that Flux imports.
"""
