"""The lookups of a task manager: tasks with a cached result end at once, and the results of others are stored.

Runs in the thread of the engine; digests, files and the database are handled outside of the event loop.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from errno import ENOENT
from itertools import chain
from typing import TYPE_CHECKING, Any

from rp_api import states
from rp_api.constants import TASK_EXECUTABLE, TRANSFER
from rp_api.description import task as names
from rp_api.errors import PilotError, sentence
from rp_api.loop.offload import Helpers
from rp_api.staging.directive import Directive
from rp_api.staging.files import copy
from rp_api.staging.location import Sandboxes, other_task, resolve
from rp_api.staging.run import attempt
from rp_api.task_modes import RAPTOR_MODES
from rp_api.values import with_files
from rp_api.wire import codec
from rp_client.cache.files import Seen, at_once
from rp_client.cache.in_flight import InFlight
from rp_client.cache.notes import DECIDES, PARTS, Identity, note, read
from rp_client.cache.output import OutputPacking, directory_of, elsewhere, put_in_place, remove_output, write_error
from rp_client.core.pilot import PilotRecord
from rp_client.core.task import TaskRecord
from rp_client.engine.tracker import Change
from rp_client.launcher.sandbox import Sandbox
from rp_client.stager.base import client_directives

if TYPE_CHECKING:
    from pathlib import Path

    from rp_client.cache.claims import Claims
    from rp_client.cache.store import CachedResult, ResultStore

_log = logging.getLogger('radical.pilot.cache')

CLOSE_TIMEOUT = 5.0
"""Seconds that a closing task manager waits for lookups."""

_UNCACHED = 'the result of %s is not cached'

SMALL = 1000
"""Files of an identity that are compared before the application hears of the end of a task; more, soon after it."""

BULK = 64
"""Tasks that are looked up together."""

Hit = tuple[TaskRecord, dict[str, Any]]
"""A task with a cached result, and the info that ends it."""


class TaskCache:
    """Looks tasks up in the store of the base directory, which is opened for the first of them.

    `answer(hits, missed)` is called with the tasks that have a result, and those that have to run.
    """

    def __init__(self, client_sandbox: str, session_directory: str, helpers: Helpers,
                 store: Callable[[], ResultStore], pilots: Callable[[], Iterable[PilotRecord]],
                 claims: Callable[[], Claims], answer: Callable[[list[Hit], list[TaskRecord]], object]) -> None:
        self._client_sandbox = client_sandbox
        self._session_directory = session_directory
        self._helpers = helpers   # its own, as transfers of files may take hours
        self._store = store
        self._pilots = pilots
        self._raptors: list[TaskRecord] = []            # the masters and workers
        self._identities: dict[str, Identity] = {}   # of tasks that run
        self._noted: dict[str, Identity] | None = None   # by earlier applications of the session
        self._outputs: dict[str, Path] = {}       # their output files
        self._results: list[tuple[TaskRecord, Identity, Path | None]] = []   # that are not stored yet
        self._said: set[str] = set()   # reasons why tasks are not cached
        self._writing = threading.Lock()
        self._in_flight = InFlight(claims, self._look_up_again)
        self._freed: list[TaskRecord] = []
        self._size = 0
        self._answer = answer

    @property
    def size(self) -> int:
        """The number of tasks that are being looked up, or wait for equal ones."""
        return self._size + self._in_flight.waiting

    def started(self, tasks: Iterable[TaskRecord]) -> None:
        """Forget the identities of tasks that start if something that they depend on has changed."""
        known = [task for task in tasks if task.uid in self._identities]
        if known:
            self._helpers.run(lambda: self._compare(known), lambda _: None, self._not_written)

    def ending(self, changes: Iterable[Change]) -> None:
        """Like `started`, for tasks that are DONE, before the application hears of it and may change files."""
        if self._identities:
            self._compare([task for task, state, _ in changes if state == states.DONE and task.uid in self._identities
                           and (self._identities[task.uid].entries <= SMALL)])

    def _compare(self, tasks: Iterable[TaskRecord]) -> None:
        with at_once():
            for task in tasks:
                noted = self._identities.get(task.uid)
                if noted and (changed := noted.changed):
                    self._identities.pop(task.uid, None)
                    self._not_cached(_UNCACHED, task, f'{changed} has changed since it was submitted')

    def look_up(self, tasks: list[TaskRecord]) -> list[TaskRecord]:
        """Look up those of the tasks that have `cache` set, and return the others."""
        self._raptors += [task for task in tasks if task.common.mode in RAPTOR_MODES]
        wanted = [task for task in tasks if task.common.cache]
        if not wanted:
            return tasks
        others = [task for task in tasks if not task.common.cache]
        needed = set(chain.from_iterable(map(_sources, others)))
        bulk = len(wanted) if needed or any(chain.from_iterable(map(_sources, wanted))) else BULK
        for first in range(0, len(wanted), bulk):
            self._look_up(wanted[first:first + bulk], needed)
        return others

    def restore(self, task: TaskRecord, told: str) -> None:
        """Keep the result of a task of an earlier application, which was told that state: it may have missed the end.

        Its inputs may have changed since it was submitted, so it keeps the identity that it had then.
        """
        if task.common.mode in RAPTOR_MODES:
            self._raptors.append(task)
        if not task.common.cache or told in states.FINAL:
            return
        if self._noted is None:
            self._noted, _ = read(self._session_directory)
        if task.uid in self._noted:
            if task.state not in states.FINAL:
                self._identities[task.uid] = self._noted[task.uid]
                self._in_flight.restored(task.uid, self._noted[task.uid].value)
            elif task.state == states.DONE and not task.common.stages_output:   # else the application had its output
                self._results.append((task, self._noted[task.uid], None))

    def resume(self, *, active: bool) -> None:
        """Claim restored tasks; `active`: a pilot can run tasks of the manager, which claim nothing otherwise."""
        self._in_flight.active = active
        if self._in_flight.any_restored:
            self._helpers.run(self._in_flight.resume, lambda _: None, self._not_written)

    def _look_up(self, tasks: list[TaskRecord], needed: set[str]) -> None:
        def found(answer: tuple[list[Hit], dict[str, Identity], set[str]]) -> None:
            hits, identities, waiting = answer
            self._identities.update(identities)
            self._size -= len(waiting)
            self._pass_on([task for task in tasks if task.uid not in waiting], hits)
            self.ended([task for task in tasks if task.state in states.FINAL], states.CANCELED)

        def failed(error: BaseException) -> None:
            _log.warning('the cache cannot be used, so tasks run without it: %s', sentence(error))
            self._pass_on(tasks, [])

        self._size += len(tasks)
        self._helpers.run(lambda: self._find(tasks, needed), found, failed)

    def _pass_on(self, tasks: list[TaskRecord], hits: list[Hit]) -> None:
        self._size -= len(tasks)
        done = {task.uid for task, _ in hits}
        self._answer([hit for hit in hits if hit[0].state not in states.FINAL],
                     [task for task in tasks if task.uid not in done])

    def _look_up_again(self, task: TaskRecord) -> None:
        """Look a task up that has waited for an equal one, soon; called in any thread."""
        self._freed.append(task)
        if len(self._freed) == 1:
            self._helpers.run(lambda: None, self._look_up_freed, self._not_written)

    def _look_up_freed(self, _: None) -> None:
        freed, self._freed = self._freed, []
        for first in range(0, len(freed), BULK):
            self._look_up(freed[first:first + BULK], set())

    def _find(self, tasks: list[TaskRecord], needed: set[str]) -> tuple[list[Hit], dict[str, Identity], set[str]]:
        """Return the tasks that have a result, with their output in place, the identities of others, and who waits.

        Those are `needed`, and run, from whose sandboxes tasks that run take files: a cached result has no sandbox.
        """
        from rp_client.cache.digest import DigestError  # few sessions need it

        identities, reasons = {}, {}
        with at_once():
            for task in tasks:
                try:
                    identities[task.uid] = self._identify(task)
                except (DigestError, OSError) as error:
                    reasons[task.uid] = sentence(error)
                    self._not_cached('%s runs without the cache', task, f'its result depends on {error}'
                                     if isinstance(error, DigestError) else sentence(error))
        self._write()   # the results of tasks that ended earlier
        store = self._store()
        results = store.find(list({noted.value: None for noted in identities.values()}))
        hits = []
        for task in reversed(tasks):   # those that take files come after those that they take them from
            noted = identities.get(task.uid)
            result = results.get(noted.value) if noted and task.uid not in needed else None
            info = self._restored(task, noted, result) if noted and result else None
            if info is not None:
                hits.append((task, info))
            else:
                needed.update(_sources(task))
                if result:   # which cannot be used: looked up again, it would be found again
                    needed.add(task.uid)
        hits.reverse()
        note(self._session_directory, identities, reasons)
        for task, _ in hits:
            del identities[task.uid]
        waiting = self._in_flight.claim(
            [(task, identities[task.uid].value) for task in tasks if task.uid in identities], needed, store.find)
        for uid in waiting:
            del identities[uid]
        return hits, identities, waiting

    def _identify(self, task: TaskRecord, seen: Seen | None = None) -> Identity:
        from rp_client.cache.identity import identity  # few sessions need these
        from rp_client.cache.surroundings import Surroundings

        return identity(task.sparse(), self._client_sandbox, Surroundings(self._pilots(), self._raptors), seen)

    def _restored(self, task: TaskRecord, noted: Identity, result: CachedResult) -> dict[str, Any] | None:
        """Put the output of a result in place, and return the info of the task; None if that is impossible."""
        info: dict[str, Any] = codec.unpack(result.info)
        directory = None
        try:
            directory = self._store().take(result)
            if changed := noted.changed:
                raise PilotError(f'{changed} has changed meanwhile')
            self._put_in_place(task, info, result, directory)
        except (PilotError, OSError) as error:
            _log.warning('%s runs, as its cached output cannot be used: %s', task.uid, sentence(error))
            return None
        finally:
            if directory is not None:
                remove_output(directory)
        return info

    def _put_in_place(self, task: TaskRecord, info: dict[str, Any], result: CachedResult, directory: Path) -> None:
        """Bring output to its targets, and complete the info of a task with what the cache adds."""
        sandboxes = Sandboxes(client=self._client_sandbox)
        for number, directive in enumerate(self._output_of(task)):
            put_in_place(directive, directory / str(number), resolve(directive['target'], 'client', sandboxes))
        if 'return_value' in info:
            info['return_value'] = with_files(info['return_value'], lambda name: self._linked(task, directory / name))
        for stream, path in elsewhere(task):
            copy(str(directory / stream), path)
        whole = {stream: self._linked(task, directory / stream) for stream in info.pop('whole')}
        del info[PARTS]
        info['cached'] = {'label': result.label, 'made': result.made, 'files': whole}

    def _linked(self, task: TaskRecord, path: Path) -> str:
        """Return a name of a file in the session directory, where it outlives the cached result."""
        place = os.path.join(self._session_directory, f'{task.uid}.{path.name}')
        with suppress(FileNotFoundError):
            os.unlink(place)
        try:
            os.link(path, place)
        except OSError:   # another file system
            copy(str(path), place)
        return place

    @staticmethod
    def _output_of(task: TaskRecord) -> list[Directive]:
        return client_directives(task.sparse().get(names.OUTPUT_STAGING, ()))

    # the results of tasks that run

    def keep(self, task: TaskRecord, directives: Sequence[Directive], sandbox: Sandbox) -> None:
        """Copy the output of a task that is to be DONE from its sandbox; called in another thread."""
        self._compare([task])
        if task.uid not in self._identities:
            return
        directory = None
        try:
            directory = self._store().new_directory()
            for number, directive in enumerate(directives):
                place = directory / str(number)
                place.mkdir()
                failed = attempt({**directive, 'action': TRANSFER},
                                 resolve(directive['source'], 'task', sandbox.sandboxes), f'{place}/')
                if failed is not None and getattr(failed.__cause__, 'errno', 0) != ENOENT:   # it need not exist
                    raise failed
        except (PilotError, OSError) as error:   # the task is DONE all the same
            if directory is not None:
                remove_output(directory)
            self._identities.pop(task.uid, None)
            self._not_cached(_UNCACHED, task, sentence(error))
        else:
            self._outputs[task.uid] = directory

    def ended(self, tasks: Iterable[TaskRecord], state: str) -> None:
        """Store the results of tasks that are DONE, soon, and forget the others."""
        ended = list(tasks)
        self._in_flight.ended(ended)
        for task in ended if self._identities else ():
            found = self._identities.pop(task.uid, None)
            directory = self._outputs.pop(task.uid, None)
            if found is not None and state == states.DONE:
                self._results.append((task, found, directory))
            elif directory is not None:
                remove_output(directory)
        if self._results or self._in_flight.any_ended:
            self._helpers.run(self._write, lambda _: None, self._not_written)

    def _write(self) -> None:
        """Store the results that are there; called in any thread."""
        with self._writing, at_once():
            ended = self._in_flight.take_ended()   # before their results
            results, self._results = self._results, []
            stored: set[bytes] = set()
            try:
                stored = self._write_results(results) if results else stored
            finally:
                self._in_flight.release(ended, stored)

    def _write_results(self, results: list[tuple[TaskRecord, Identity, Path | None]]) -> set[bytes]:
        """Store results, and return the identities of those that can be stored."""
        store = self._store()
        errors = {place: write_error(place) for place in {directory_of(task) for task, _, _ in results}}
        entries = []
        for task, noted, directory in results:
            packing = OutputPacking(task, noted, store, directory)
            try:
                reason = self._doubt(task, noted, errors[directory_of(task)])
                if not reason:
                    entries.append((noted.value, _label(task), *packing.packed()))
            except (PilotError, OSError) as error:
                reason = sentence(error)
            if reason:
                packing.drop()
                self._not_cached(_UNCACHED, task, reason)
        store.add(entries)
        return {entry[0] for entry in entries}

    def _doubt(self, task: TaskRecord, noted: Identity, error: OSError | None) -> str:
        """Return why a result may be incomplete, or that of another identity; empty if it is certainly neither."""
        from rp_client.cache.digest import DigestError  # few sessions need these
        from rp_client.cache.surroundings import unlike

        if error is not None:
            return f'its output may be incomplete: {sentence(error)}'
        if noted.by_key:
            return ''
        try:
            if noted.seen is None:
                same = self._identify(task).state == noted.state
            else:   # masters may have got other workers
                same = not task.common.raptor_id or self._identify(task, noted.seen).value == noted.value
        except DigestError as wrong:
            return str(wrong)
        if not same or (noted.entries > SMALL and noted.changed):
            return 'something that its result depends on has changed since it was submitted'
        return unlike(task.pilot, python=task.common.mode != TASK_EXECUTABLE)

    def _not_cached(self, sentence: str, task: TaskRecord, reason: str) -> None:
        """Say why a task is not cached, the first time."""
        kind = reason.replace(task.uid, '')
        if kind not in self._said:
            self._said.add(kind)
            _log.warning(f'{sentence}: %s (said once; %s)', task.uid, reason, DECIDES)

    @staticmethod
    def _not_written(error: BaseException) -> None:
        _log.warning('results are not cached: %s', sentence(error))

    def flush(self) -> None:
        """Store the results that are there; called in any thread."""
        try:
            self._write()
        except (PilotError, OSError) as error:
            self._not_written(error)

    def close(self) -> None:
        """Store the last results."""
        self._helpers.close(CLOSE_TIMEOUT)
        self.flush()


def _sources(task: TaskRecord) -> Iterator[str]:
    """Yield the uids of tasks from whose sandboxes a task takes files."""
    for directive in task.sparse().get(names.INPUT_STAGING, ()):
        if other := other_task(directive['source']):
            yield other[0]


def _label(task: TaskRecord) -> str:
    description = task.sparse()
    what = [description.get(names.EXECUTABLE, ''), *description.get(names.ARGUMENTS, ())]
    return ' '.join([task.uid, description.get(names.NAME, ''), *what])[:200]
