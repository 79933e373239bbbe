"""Modes of tasks that run until they are stopped; nothing waits for their end."""

from rp_api import constants as c

SERVICE_MODES = frozenset({c.TASK_SERVICE, c.RAPTOR_MASTER, c.RAPTOR_WORKER, c.AGENT_SERVICE})
