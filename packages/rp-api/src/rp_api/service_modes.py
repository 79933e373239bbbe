"""Modes of tasks for which an idle pilot without an application does not stay: services, and calls."""

from rp_api import constants as c
from rp_api.pilot_calls import MASTER_RPC, PILOT_RPC

SERVICE_MODES = frozenset({
    c.TASK_SERVICE, c.RAPTOR_MASTER, c.RAPTOR_WORKER, c.AGENT_SERVICE, PILOT_RPC, MASTER_RPC})
