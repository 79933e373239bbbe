"""`radical.pilot.pilot_description`: pilot descriptions, and the names of their attributes as constants."""

from rp_api.description.pilot import *  # noqa: F403
