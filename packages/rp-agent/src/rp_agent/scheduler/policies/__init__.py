"""The scheduling policies of this distribution: each decides where on the slot map a task is placed.

`find` finds the policy that the platform names. Imports `policy` and the slot map.
"""
