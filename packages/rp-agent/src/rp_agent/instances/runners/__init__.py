"""Programs that run in the environment of a launcher, perhaps in another Python than ours.

Python looks for modules beside a program first: nothing here may have the name of what the programs import.
"""
