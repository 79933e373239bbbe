"""Messages between RAPTOR masters, workers, applications and ranks, and the encoding of calls and results.

Imports none of the other packages.
"""
