"""Session data for radical.analytics and similar programs, which use it through `radical.pilot.utils`.

`session` has the events and entities of a session, `durations` the tables of durations, `resources` the use of cores
and GPUs. The modules import the coordination's read access to sessions, and rp-profiling on first use.
"""
