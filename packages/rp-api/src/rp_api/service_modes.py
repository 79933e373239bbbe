"""The tasks that run until they are told to end: nobody waits for them to be done."""

from rp_api import constants as c

SERVICE_MODES = frozenset({c.TASK_SERVICE, c.RAPTOR_MASTER, c.RAPTOR_WORKER, c.AGENT_SERVICE})
"""The modes of these tasks."""
