"""The session, the pilot, and the RAPTOR master and workers of an executor: started when needed, ended with it."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from rp_api import constants as c
from rp_api import states
from rp_api.description import task as names
from rp_api.description.pilot import PilotDescription
from rp_api.description.task import TaskDescription
from rp_api.distributions import require
from rp_api.failures.kinds import CANCELED
from rp_api.resources import Slot
from rp_api.wire import codec
from rp_client.executor.requirements import PilotSize, Shape, size
from rp_client.flow.submission import plain, verified
from rp_client.handles.base import record_of
from rp_client.handles.pilot import Pilot
from rp_client.handles.pilot_manager import PilotManager
from rp_client.handles.raptor import RaptorMaster, RaptorWorker
from rp_client.handles.session import Session
from rp_client.handles.task import Task
from rp_client.handles.task_manager import TaskManager
from rp_client.report import Report
from rp_client.service.owner import base_directory, engine_of, owner_of

LOCAL = 'local.exact'
"""The platform without `resource`: the machine of the application."""

_LOCAL_RUNTIME_MINUTES = 366 * 24 * 60
"""Minutes for which a pilot on the machine of the application lasts, which no batch system ends."""

_PATIENCE = 30.0
"""Seconds that the end of a master and its workers may take on a pilot that stays."""

Ended = Callable[[str], object]
"""Gets the reason why a pilot, master or worker has ended."""

END_TIMEOUT = 30.0
"""Seconds that the end of a master and its workers may take."""

_RAPTOR = (c.RAPTOR_MASTER, c.RAPTOR_WORKER)
_SIZE = ('resource', 'cores', 'nodes', 'gpus')


def describe(cores: Any, nodes: Any, gpus: Any, resource: Any, runtime: Any, project: Any,
             queue: Any) -> PilotDescription:
    """Return the description of a pilot; TypeError or ValueError for a value that is not allowed."""
    resource = LOCAL if resource is None else resource
    local = isinstance(resource, str) and resource.startswith('local.')
    if runtime is None and not local:
        raise ValueError(f"runtime is not set, but a pilot on {resource!r} needs it: for example runtime='1h'")
    sizes = {name: size(name, value) for name, value in (('cores', cores), ('nodes', nodes), ('gpus', gpus))
             if value is not None}
    if 'cores' in sizes or 'nodes' in sizes or resource == 'local.allocation':
        pass
    elif resource == LOCAL:
        sizes['cores'] = len(os.sched_getaffinity(0))
    else:
        sizes |= {'cores': 1} if gpus else {'nodes': 1}   # cores and GPUs are rounded up to whole nodes
    description = PilotDescription({
        'resource': resource, 'runtime': _LOCAL_RUNTIME_MINUTES if runtime is None else runtime,
        'project': project, 'queue': queue, 'exit_on_error': False, **sizes})
    description.verify()
    return description


class Allocation:
    """The session, pilot and RAPTOR master of an executor; closes what it has opened, but no session or pilot given."""

    def __init__(self, description: PilotDescription | None, pilot: Pilot | None, session: Session | None,
                 uid: str | None = None, *, progress: bool = True) -> None:
        self._progress = progress
        self._description = description
        self._uid = uid   # of the session to be opened
        self._earlier: Earlier | None = None
        self._session = pilot.session if pilot else session
        self._owns_session = self._session is None
        self._owns_pilot = pilot is None
        self._pmgr: PilotManager | None = None
        self._tmgr: TaskManager | None = None
        self._owns_tmgr = False
        self._pilot = pilot
        self._tasks: list[Task] = []
        self._ended: set[str] = set()

    @property
    def place(self) -> str:
        """The pilot, or the platform on which there will be one."""
        if self._pilot is not None:
            return self._pilot.uid
        assert self._description
        return str(self._description.resource)

    @property
    def size(self) -> PilotSize | None:
        """The size of the pilot, if it is known before the pilot is there."""
        known = self._description
        if known is None or known.resource != LOCAL or not known.cores:
            return None
        return PilotSize(known.cores, known.gpus, 1)

    @property
    def lost(self) -> str:
        """The reason why the given pilot cannot be used any more; empty if it can."""
        pilot = self._pilot
        return _end_of(pilot) if pilot is not None and pilot.state in states.FINAL else ''

    @property
    def unlike(self) -> str:
        """Why the client cannot judge the files and the Python of the pilot; empty if it can."""
        from rp_client.cache.surroundings import unlike  # few executors need it

        return unlike(None if self._pilot is None else record_of(self._pilot), python=True)

    @property
    def base(self) -> str:
        """The base directory of the session, which may not be open yet."""
        return self._session.base if self._session else base_directory()

    @property
    def report(self) -> Report:
        """The report of the session, which is open; one that shows nothing if the executor has no progress."""
        return owner_of(self._session).report if self._progress else Report(list, wanted=False)

    @property
    def tmgr(self) -> TaskManager:
        """The task manager."""
        assert self._tmgr
        return self._tmgr

    def open(self, active: Callable[[PilotSize], object], ended: Ended) -> None:
        """Open the session, and submit the pilot; `active` gets its size when it is there."""
        if self._session is None:
            self._session = Session(uid=self._uid, progress=self._progress)
            if self._session.attached:
                assert self._description
                self._earlier = Earlier(self._session)
                self._pilot = self._earlier.pilot(self._description)
        if self._pilot is None:
            self._pmgr = PilotManager(self._session)
            assert self._description
            self._pilot = self._pmgr.submit_pilots(self._description)
        attached = record_of(self._pilot).tmgr
        if attached is None:
            self._tmgr, self._owns_tmgr = TaskManager(self._session), True
            self._tmgr.add_pilots(self._pilot)
        else:
            self._tmgr = self._session.get_task_managers(attached)

        def broke(error: BaseException) -> None:
            ended(f'the session cannot go on: {error}')

        engine_of(self._tmgr).on_broken.append(broke)
        self._pilot.register_callback(lambda pilot, state: self._pilot_changed(pilot, active, ended))
        self._pilot_changed(self._pilot, active, ended)

    def start_master(self, ended: Ended) -> RaptorMaster:
        """Submit a master. It takes no core from calls and programs, as it is idle most of the time."""
        require('rp-raptor')
        assert self._pilot
        slot = Slot({'node_index': 0, 'cores': [], 'gpus': []})
        master = self._pilot.submit_raptors(TaskDescription({'mode': c.RAPTOR_MASTER, 'slots': [slot]}))[0]
        self._follow(master, ended)
        return master

    def start_worker(self, master: RaptorMaster, shape: Shape, ranks: int, ended: Ended) -> RaptorWorker:
        """Submit a worker, before programs that wait."""
        worker = master.submit_workers(TaskDescription({
            'mode': c.RAPTOR_WORKER, 'raptor_class': 'MPIWorker' if shape.mpi else 'DefaultWorker', 'ranks': ranks,
            'cores_per_rank': shape.cores, 'gpus_per_rank': shape.gpus, 'priority': 1}))[0]
        self._follow(worker, ended)
        return worker

    def submit(self, descriptions: list[TaskDescription]) -> list[Task]:
        """Submit programs."""
        assert self._pilot
        for description in descriptions:
            description.pilot = self._pilot.uid
        return self.tmgr.submit_tasks(descriptions)

    def earlier(self, description: TaskDescription) -> Task | None:
        """Return the task of a program that an earlier executor of the same uid has requested, each once."""
        return self._earlier.program(description) if self._earlier is not None else None

    def close(self) -> None:
        """End what was started here."""
        if self._owns_session:
            if self._session is not None:
                self._session.close()
            return
        self._tasks = [task for task in self._tasks if task.state not in states.FINAL]
        if self._tmgr is not None and self._owns_tmgr:
            self._tmgr.close()
        elif self._tmgr is not None and self._tasks:
            left = [task.uid for task in self._tasks]
            self._tmgr.cancel_tasks(left)
            self._tmgr.wait_tasks(left, timeout=_PATIENCE)
        if self._pmgr is not None:
            self._pmgr.close()

    def _follow(self, task: Task, ended: Ended) -> None:
        """Report the end of a task, once."""
        self._tasks.append(task)

        def changed(task: Task, state: str) -> None:
            if state in states.FINAL and task.uid not in self._ended:
                self._ended.add(task.uid)
                self._tasks.remove(task)
                error = task.error
                if error is not None and error.kind == CANCELED:
                    ended('')
                else:
                    ended(f'{task.uid} is {state}: {error.sentence if error is not None else "no reason"}')

        task.register_callback(changed)

    def _pilot_changed(self, pilot: Pilot, active: Callable[[PilotSize], object], ended: Ended) -> None:
        details = pilot.resource_details
        if pilot.state in states.FINAL:
            ended(_end_of(pilot))
        elif details is not None and pilot.state == states.PMGR_ACTIVE:
            active(PilotSize(details['cores'], details['gpus'], max(1, len(details['node_list']))))


def _end_of(pilot: Pilot) -> str:
    return f'{pilot.uid} is {pilot.state}' + (f': {pilot.exception}' if pilot.exception else '')


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
                    self._programs[_key(record_of(task).sparse())].append(task)
            if raptors:
                tmgr.cancel_tasks(raptors)
                tmgr.wait_tasks(raptors, timeout=END_TIMEOUT)

    def pilot(self, description: PilotDescription) -> Pilot | None:
        """Return a pilot of that size, with its task manager, that is not final; None without one."""
        for pmgr in self._session.get_pilot_managers():
            for pilot in pmgr.get_pilots():
                if (pilot.state not in states.FINAL and record_of(pilot).tmgr is not None
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
