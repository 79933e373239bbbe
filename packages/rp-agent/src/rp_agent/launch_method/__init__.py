"""Launch methods compose the command lines that start ranks, a class for each launcher, from fork to Flux.

Imports resource managers.
"""
