"""`radical.pilot.task_description`: task descriptions, and the names of their attributes as constants."""

from rp_api.description.task import *  # noqa: F403
