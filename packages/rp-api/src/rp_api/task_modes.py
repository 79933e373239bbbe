"""Calls of an application to an agent, which are tasks of a mode of their own; modes that keep no pilot alive.

So a call is delivered once, is kept apart from others by its uid, survives the restart of a coordinator, and ends with
its pilot. Its `method` is the name of the procedure, and `args` and `kwargs` are its arguments, plain data. Its result
is the task's `return_value`, or the task fails. RAPTOR masters are called in the same way (`raptor_link.RPC`).

The delivery of tasks may be suspended, but not that of commands. Therefore the client also sends each call as the
command `{'cmd': 'call', 'task': description with uid}`; the one that arrives first counts.
"""

from __future__ import annotations

from rp_api import constants as c

PILOT_RPC = 'pilot.rpc'
"""The mode of a task that calls a procedure of the agent."""

MASTER_RPC = 'raptor.rpc'
"""The mode of a task that calls a procedure of a RAPTOR master."""

OWNER = 'calls'
"""The owner of calls to the coordinator, in place of a task manager; it is empty once a call was forgotten."""

KIND = 'rpc'
"""The part before the number in the uid of a call, by which forgotten calls are told from forgotten tasks."""

SERVICE_MODES = frozenset({
    c.TASK_SERVICE, c.RAPTOR_MASTER, c.RAPTOR_WORKER, c.AGENT_SERVICE, PILOT_RPC, MASTER_RPC})
"""Modes of tasks for which an idle pilot without an application does not stay: services, and calls."""

RAPTOR_MODES = frozenset({c.RAPTOR_MASTER, c.RAPTOR_WORKER})
"""Modes of the tasks that run calls."""


def is_call(uid: str) -> bool:
    """Return whether the uid of a task, which may be forgotten, is that of a call."""
    return f'.{KIND}.' in uid
