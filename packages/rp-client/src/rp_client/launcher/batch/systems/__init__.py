"""One module for each batch system: its job scripts, its commands, and the meaning of their output, as pure functions.

They import only `base`, `request` and rp-api; `registry` finds them by the scheme of a URL.
"""
