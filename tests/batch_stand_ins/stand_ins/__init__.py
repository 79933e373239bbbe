"""Programs that answer as those of batch systems which no test machine has; what they do not need is not there.

They run jobs for real, on this machine: `jobs.py` has the table and runs them, one module per batch system has its
programs, which take and print what the documentation of the batch system shows.
"""
