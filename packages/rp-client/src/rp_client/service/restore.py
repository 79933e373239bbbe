"""Attaching to a session: restores managers, pilots and tasks from the coordinator's records, page by page.

Runs in the thread of the engine. When all pages have arrived, work resumes: unbound tasks are scheduled, outputs are
staged, agents are watched. State changes that no application has seen are kept for the first callback.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rp_api import states
from rp_api.batch import ROWS, unpacked
from rp_api.coordination.contract import KnownPilot, KnownTask, Page
from rp_api.errors import CoordinationError
from rp_api.task_modes import OWNER, is_call
from rp_client.core.pilot import PilotRecord
from rp_client.service.handover import OwnerRequests
from rp_client.service.owner import Owner
from rp_client.service.requests import Requested
from rp_client.service.tasks import NO_PILOT_TIMEOUT

PAGE_TIMEOUT = 30.0
"""Seconds to wait for the next page."""


def open_session(session: Owner, make_pmgr: Callable[..., object], make_tmgr: Callable[..., object], *,
                 fresh: bool = False, requests: OwnerRequests | None = None) -> None:
    """Open a session, and restore it if it exists already; `make_pmgr` and `make_tmgr` make its managers again.

    The owner answers `requests` from then on; default: those to an application.

    Raises `CoordinationError`. The caller closes the session, also after an error.
    """
    try:
        session.connect(fresh=fresh)
        if session.attached:
            _restore(session, Restoration(session, make_pmgr, make_tmgr))
        session.opened()
        session.answer(requests, Requested(session).carry_out)
    except BaseException:   # also an interruption, when everything may be there
        session.traces.discard()   # another application may have the session and write its profiles
        raise


def _restore(session: Owner, restoration: Restoration) -> None:
    try:
        session.engine.ask(restoration.start, PAGE_TIMEOUT, lambda: restoration.pages)
    except Exception as error:
        reason = error if isinstance(error, TimeoutError) else session.engine.failure
        if reason is not None:
            raise CoordinationError(f'{session.uid} cannot be attached: {reason} ({session.reg_addr})') from reason
        raise


class Restoration:
    """The restored managers and pilots; `pages` counts the pages that have arrived."""

    def __init__(self, session: Owner, make_pmgr: Callable[..., object], make_tmgr: Callable[..., object]) -> None:
        self.pages = 0
        self._session = session
        self._make_pmgr, self._make_tmgr = make_pmgr, make_tmgr
        self._done: Future[None]
        self._pilots: dict[str, PilotRecord] = {}
        self._jobs: dict[str, dict[str, Any]] = {}
        self._left: set[str] = set()
        self._calls: list[KnownTask] = []

    def start(self, done: Future[None]) -> None:
        """Request all records; `done` gets a result when the work has resumed."""
        self._done = done
        self._session.engine.connection.recover(self._take)

    def _take(self, page: Page) -> None:
        if not self.pages:
            self._make_managers(page)
        self.pages += 1
        for task in page.tasks:
            self._take_task(task)
        if page.last:
            self._resume()
            self._done.set_result(None)

    def _make_managers(self, page: Page) -> None:
        notes = {uid: note for uid, note in sorted(page.notes.items()) if note is not None}
        self._jobs = {key.removeprefix('job.'): note for key, note in notes.items() if key.startswith('job.')}
        for uid, note in notes.items():
            if uid.startswith('pmgr.'):
                self._make_pmgr(uid)
            elif uid.startswith('tmgr.'):
                self._make_tmgr(note['scheduler'], note.get('no_pilot_timeout', NO_PILOT_TIMEOUT), uid)
        for pilot in page.pilots:   # before their partitions
            self._take_pilot(pilot)
        self._session.uids.claim_pilots([pilot.uid for pilot in page.pilots])
        for uid, tmgr in self._session.tmgrs.items():
            tmgr.restore_pilots([self._pilots[pilot] for pilot in notes[uid]['pilots'] if pilot in self._pilots])

    def _take_pilot(self, known: KnownPilot) -> None:
        pmgr = self._session.pmgrs.get(known.record['pmgr'])
        if pmgr is not None:
            self._pilots[known.uid] = pmgr.restore(known, self._jobs.get(known.uid))

    def _take_task(self, known: KnownTask) -> None:
        tmgr = self._session.tmgrs.get(known.owner)
        if ROWS in known.description:
            self._session.uids.reserve_sweep(unpacked(known.description).sweep)
        if tmgr is None:   # the manager was closed, or the task was forgotten
            if is_call(known.uid):
                self._session.uids.reserve_tasks([known.uid])
            else:
                self._session.uids.removed_tasks([known.uid])
            for each in self._session.tmgrs.values():
                each.tasks.drop(known.uid, known.state)
            if known.owner == OWNER:
                self._calls.append(known)
        else:
            task = tmgr.restore(known, self._pilots.get(known.pilot))
            if task.place and task.state not in states.FINAL:
                self._left.add(task.place)

    def _resume(self) -> None:
        self._session.calls.restore(self._calls, self._pilots)
        for tmgr in self._session.tmgrs.values():
            tmgr.resume()
        for pilot in self._pilots.values():
            if pilot.state in states.FINAL and (pilot.uid in self._left or pilot.tmgr is not None):
                self._session.pilot_left(pilot)
        for pmgr in self._session.pmgrs.values():
            pmgr.flow.resume()
