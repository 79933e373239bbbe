"""Launch methods: one class per launcher, from fork to Flux, that composes the command line which starts ranks.

May import resource managers.
"""
