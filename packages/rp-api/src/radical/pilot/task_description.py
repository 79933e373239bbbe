"""`radical.pilot.task_description`: task descriptions, and their attribute names as constants."""

from rp_api.description.task import *  # noqa: F403
