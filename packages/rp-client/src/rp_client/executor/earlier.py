"""What an earlier executor of the same uid, whose process has died, has left in its session.

Programs that run, wait or are done become those of the same requests when these are made again. Its RAPTOR master and
workers, which keep no results for another process, are ended.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rp_api import constants as c
from rp_api import states
from rp_api.description import task as names
from rp_api.wire import codec
from rp_client.flow.submission import plain, verified

if TYPE_CHECKING:
    from rp_api.description.pilot import PilotDescription
    from rp_api.description.task import TaskDescription
    from rp_client.pilot import Pilot
    from rp_client.session import Session
    from rp_client.task import Task

END_TIMEOUT = 30.0
"""Seconds that the end of a master and its workers may take."""

_RAPTOR = (c.RAPTOR_MASTER, c.RAPTOR_WORKER)
_SIZE = ('resource', 'cores', 'nodes', 'gpus')


class Earlier:
    """The pilots and programs of a session that was attached to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._programs: dict[bytes, deque[Task]] = defaultdict(deque)
        for tmgr in session.get_task_managers():
            raptors = []
            for task in tmgr.get_tasks():
                if task.mode in _RAPTOR and task.state not in states.FINAL:
                    raptors.append(task.uid)
                elif task.mode == c.TASK_EXECUTABLE and task.state not in (states.FAILED, states.CANCELED):
                    self._programs[_key(task._sparse())].append(task)
            if raptors:
                tmgr.cancel_tasks(raptors)
                tmgr.wait_tasks(raptors, timeout=END_TIMEOUT)

    def pilot(self, description: PilotDescription) -> Pilot | None:
        """Return a pilot of that size, with its task manager, that is not final; None without one."""
        for pmgr in self._session.get_pilot_managers():
            for pilot in pmgr.get_pilots():
                if (pilot.state not in states.FINAL and pilot._tmgr is not None
                        and all(pilot.description[name] == description[name] for name in _SIZE)):
                    return pilot   # type: ignore[no-any-return]
        return None

    def program(self, description: TaskDescription) -> Task | None:
        """Return the task of a program that was requested before, each once; None if there is none."""
        if not self._programs:
            return None
        found = self._programs.get(_key(plain(verified(description, 'a program'))))
        return found.popleft() if found else None


def _key(sparse: Mapping[str, Any]) -> bytes:
    """Return what equal requests have in common, whether their empty attributes are set or not."""
    ignored = {names.PILOT, names.UID}
    if sparse.get(names.USE_MPI) == (sparse.get(names.RANKS, 1) > 1):
        ignored.add(names.USE_MPI)
    return codec.pack(sorted((name, value) for name, value in sparse.items() if name not in ignored and (
        value or type(value) in (int, float))))
