"""What agents send on a task besides its state and result: times and usage of its run, and its slots.

Both have short forms on the wire, in databases and in the memory of applications. It imports nothing of ours.
"""
