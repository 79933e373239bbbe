"""`radical.pilot.pilot_description`: pilot descriptions, and their attribute names as constants."""

from rp_api.description.pilot import *  # noqa: F403
