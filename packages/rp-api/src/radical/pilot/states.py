"""`radical.pilot.states`: the states of pilots and tasks."""

from rp_api.states import *  # noqa: F403
