"""`radical.pilot.constants`: the values that descriptions, directives and callbacks take."""

from rp_api.constants import *  # noqa: F403
