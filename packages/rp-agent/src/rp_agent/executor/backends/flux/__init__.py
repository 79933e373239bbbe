"""Flux: its instances, the executor FLUX, and the program that submits tasks as Flux jobs.

That program runs in the Python of Flux: no module here may have a name that Flux imports.
"""
