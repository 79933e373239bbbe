"""`radical.pilot.constants`: values for descriptions, staging directives and callbacks."""

from rp_api.constants import *  # noqa: F403
