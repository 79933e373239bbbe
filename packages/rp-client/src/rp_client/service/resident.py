"""The resident process of a session whose application has left: `rp session serve`."""

from __future__ import annotations

from functools import partial
from typing import Any

from rp_api import states
from rp_api.errors import CoordinationError, PilotError
from rp_client.service.handover import NAME, OwnerRequests, take_over
from rp_client.service.owner import Owner
from rp_client.service.pilots import PilotOwner
from rp_client.service.restore import open_session
from rp_client.service.task_requests import TaskRequests

_POLL_S = 1.0


def serve(uid: str, where: dict[str, Any]) -> str:
    """Run the owner of a session until an application asks for the session, or all tasks and pilots are final.

    `where` are the arguments with which `Session` attaches to it. Returns why the session was left.

    Raises:
        PilotError: There is no open session of that uid.
        CoordinationError: An application has the session open, or the connection has failed.
    """
    owner = Owner(uid, **where)
    take_over(owner.path)
    requests = OwnerRequests(owner.path, NAME)   # from now on, who attaches waits for this process
    try:
        open_session(owner, partial(PilotOwner, owner), partial(TaskRequests, owner), requests=requests)
        if not owner.attached:
            raise PilotError(f'there was no open session {uid} to serve')
        while _is_busy(owner):
            if requests.wait(_POLL_S):
                return 'an application attaches to it'
        return 'all its tasks and pilots have ended'
    finally:
        owner.close(leave=owner.attached)
        owner.end()
        requests.close()


def _is_busy(owner: Owner) -> bool:
    if owner.engine.failure is not None:
        raise CoordinationError(f'the session cannot go on: {owner.engine.failure}') from owner.engine.failure
    return (any(pilot.state not in states.FINAL for pilot in owner.pilots())
            or any(tmgr.unfinished for tmgr in owner.tmgrs.values()))
