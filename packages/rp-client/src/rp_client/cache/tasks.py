"""The lookups of a task manager: tasks with a cached result end at once, and the results of others are stored.

Runs in the thread of the engine; digests, files and the database are handled outside of the event loop.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from shutil import copyfileobj
from typing import TYPE_CHECKING, Any, BinaryIO

from rp_api import states
from rp_api.constants import TRANSFER
from rp_api.description import task as names
from rp_api.errors import PilotError, sentence
from rp_api.loop.offload import Helpers
from rp_api.staging.directive import Directive, has_wildcard
from rp_api.staging.files import attempt, copy
from rp_api.staging.location import Sandboxes, other_task, resolve
from rp_api.staging.trees import remove
from rp_api.values import with_files
from rp_api.wire import codec
from rp_client.completion.result import SHOWN
from rp_client.stager.base import Sandbox, client_directives
from rp_client.task import Task

if TYPE_CHECKING:
    from pathlib import Path

    from rp_client.cache.store import Result, ResultStore

_log = logging.getLogger('radical.pilot.cache')

_STREAMS: dict[str, Callable[[Task], BinaryIO]] = {'stdout': Task.open_stdout, 'stderr': Task.open_stderr}

_KEPT = ('exit_code', 'stdout', 'stderr', 'return_value', 'output_files')
"""The data of a task that is its result."""

NOTES = 'cache.identities'
"""Name of the file in a session's directory with the identities of the tasks that run, for the next application."""

CLOSE_TIMEOUT = 5.0
"""Seconds that a closing task manager waits for lookups."""

BULK = 64
"""Tasks that are looked up together."""

Hit = tuple[Task, dict[str, Any]]
"""A task with a cached result, and the info that ends it."""


class TaskCache:
    """Looks tasks up in the store of the base directory, which is opened for the first of them.

    `missed(tasks)` is called with tasks that have to run, `hit(hits)` with those that have a result.
    """

    def __init__(self, client_sandbox: str, session_directory: str, helpers: Helpers,
                 store: Callable[[], ResultStore]) -> None:
        self._client_sandbox = client_sandbox
        self._session_directory = session_directory
        self._helpers = helpers   # its own, as transfers of files may take hours
        self._store = store
        self._identities: dict[str, bytes] = {}   # of tasks that run
        self._noted: dict[str, bytes] | None = None   # by earlier applications of the session
        self._outputs: dict[str, Path] = {}       # their output files
        self._results: list[tuple[Task, bytes, Path | None]] = []   # that are not stored yet
        self._writing = threading.Lock()
        self._size = 0
        self.missed: Callable[[list[Task]], object]
        self.hit: Callable[[list[Hit]], object]

    @property
    def size(self) -> int:
        """The number of tasks that are being looked up."""
        return self._size

    def look_up(self, tasks: list[Task]) -> list[Task]:
        """Look up those of the tasks that have `cache` set, and return the others."""
        wanted = [task for task in tasks if task._common.cache]
        if not wanted:
            return tasks
        others = [task for task in tasks if not task._common.cache]
        needed = set(chain.from_iterable(map(_sources, others)))
        bulk = len(wanted) if needed or any(chain.from_iterable(map(_sources, wanted))) else BULK
        for first in range(0, len(wanted), bulk):
            self._look_up(wanted[first:first + bulk], needed)
        return others

    def restore(self, task: Task, told: str) -> None:
        """Keep the result of a task of an earlier application, which was told that state: it may have missed the end.

        Its inputs may have changed since it was submitted, so it keeps the identity that it had then.
        """
        if not task._common.cache or told in states.FINAL:
            return
        if self._noted is None:
            self._noted = _read_notes(self._notes)
        if task.uid in self._noted:
            if task.state not in states.FINAL:
                self._identities[task.uid] = self._noted[task.uid]
            elif task.state == states.DONE and not task._common.stages_output:   # else the application had its output
                self._results.append((task, self._noted[task.uid], None))

    @property
    def _notes(self) -> str:
        return os.path.join(self._session_directory, NOTES)

    def _look_up(self, tasks: list[Task], needed: set[str]) -> None:
        def found(answer: tuple[list[Hit], dict[str, bytes]]) -> None:
            hits, identities = answer
            self._identities.update(identities)
            self._pass_on(tasks, hits)

        def failed(error: BaseException) -> None:
            _log.warning('the cache cannot be used, so tasks run without it: %s', sentence(error))
            self._pass_on(tasks, [])

        self._size += len(tasks)
        self._helpers.run(lambda: self._find(tasks, needed), found, failed)

    def _pass_on(self, tasks: list[Task], hits: list[Hit]) -> None:
        self._size -= len(tasks)
        done = {task.uid for task, _ in hits}
        self.hit([hit for hit in hits if hit[0].state not in states.FINAL])
        self.missed([task for task in tasks if task.uid not in done])

    def _find(self, tasks: list[Task], needed: set[str]) -> tuple[list[Hit], dict[str, bytes]]:
        """Return the tasks that have a result, with their output in place, and the identities of the others.

        Those are `needed`, and run, from whose sandboxes tasks that run take files: a cached result has no sandbox.
        """
        from rp_client.cache.digest import DigestError  # few sessions need these
        from rp_client.cache.identity import identity

        identities = {}
        for task in tasks:
            try:
                identities[task.uid] = identity(task._sparse(), self._client_sandbox)
            except (DigestError, OSError) as error:
                _log.warning('%s runs without the cache: %s', task.uid, error)
        self._write()   # the results of tasks that ended earlier
        store = self._store()
        results = store.find(list(dict.fromkeys(identities.values())))
        hits = []
        for task in reversed(tasks):   # those that take files come after those that they take them from
            result = None if task.uid in needed else results.get(identities.get(task.uid, b''))
            info = self._restored(task, result, store.path(result)) if result else None
            if info is not None:
                hits.append((task, info))
                del identities[task.uid]
            else:
                needed.update(_sources(task))
        hits.reverse()
        _note(self._notes, identities)
        return hits, identities

    def _restored(self, task: Task, result: Result, directory: Path) -> dict[str, Any] | None:
        """Put the output of a result in place, and return the info of the task; None if that is impossible."""
        info: dict[str, Any] = codec.unpack(result.info)
        sandboxes = Sandboxes(client=self._client_sandbox)
        try:
            for number, directive in enumerate(self._output_of(task)):
                _stage(directive, directory / str(number), resolve(directive['target'], 'client', sandboxes))
            if 'return_value' in info:
                info['return_value'] = with_files(info['return_value'],
                                                  lambda name: self._linked(task, directory / name))
            whole = {stream: self._linked(task, directory / stream) for stream in info.pop('whole')}
        except (PilotError, OSError) as error:
            _log.warning('%s runs, as its cached output cannot be used: %s', task.uid, sentence(error))
            return None
        return {**info, 'cached': {'label': result.label, 'made': result.made, 'files': whole}}

    def _linked(self, task: Task, path: Path) -> str:
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
    def _output_of(task: Task) -> list[Directive]:
        return client_directives(task._sparse().get(names.OUTPUT_STAGING, ()))

    # the results of tasks that run

    def keep(self, task: Task, directives: Sequence[Directive], sandbox: Sandbox) -> None:
        """Copy the output of a task that is to be DONE from its sandbox; called in another thread."""
        if task.uid not in self._identities:
            return
        directory = None
        try:
            directory = self._store().new_directory()
            for number, directive in enumerate(directives):
                place = directory / str(number)
                place.mkdir()
                attempt({**directive, 'action': TRANSFER}, resolve(directive['source'], 'task', sandbox.sandboxes),
                        f'{place}/')
        except (PilotError, OSError) as error:   # the task is DONE all the same
            if directory is not None:
                _remove(directory)
            self._identities.pop(task.uid, None)
            _log.warning('the result of %s is not cached: %s', task.uid, sentence(error))
        else:
            self._outputs[task.uid] = directory

    def ended(self, tasks: Iterable[Task], state: str) -> None:
        """Store the results of tasks that are DONE, soon, and forget the others."""
        for task in tasks if self._identities else ():
            found = self._identities.pop(task.uid, None)
            directory = self._outputs.pop(task.uid, None)
            if found is not None and state == states.DONE:
                self._results.append((task, found, directory))
            elif directory is not None:
                _remove(directory)
        if self._results:
            self._helpers.run(self._write, lambda _: None, self._not_written)

    def _write(self) -> None:
        """Store the results that are there; called in any thread."""
        with self._writing:
            results, self._results = self._results, []
            if not results:
                return
            store = self._store()
            store.add([(found, _label(task), *_Packing(task, store, directory).packed())
                       for task, found, directory in results])

    @staticmethod
    def _not_written(error: BaseException) -> None:
        _log.warning('results are not cached: %s', sentence(error))

    def close(self) -> None:
        """Store the last results."""
        self._helpers.close(CLOSE_TIMEOUT)
        try:
            self._write()
        except (PilotError, OSError) as error:
            self._not_written(error)


def _sources(task: Task) -> Iterator[str]:
    """Yield the uids of tasks from whose sandboxes a task takes files."""
    for directive in task._sparse().get(names.INPUT_STAGING, ()):
        if other := other_task(directive['source']):
            yield other[0]


def _note(path: str, identities: Mapping[str, bytes]) -> None:
    """Append the identities of tasks to a file; without it, only results that another application learns are lost."""
    with suppress(OSError), open(path, 'a') as notes:
        notes.write(''.join(f'{found.hex()} {uid}\n' for uid, found in identities.items()))


def _read_notes(path: str) -> dict[str, bytes]:
    """Return the identities in a file, of which a crash may have left the last line incomplete."""
    try:
        with open(path) as notes:
            lines = [line[:-1].partition(' ') for line in notes if line.endswith('\n')]
    except OSError:
        return {}
    return {uid: bytes.fromhex(found) for found, _, uid in lines}


def _stage(directive: Directive, place: Path, target: str) -> None:
    """Bring the output of a directive to its target, as the directive would."""
    for path in sorted(place.iterdir()):
        attempt(directive, str(path), os.path.join(target, '') if has_wildcard(directive['source']) else target)


class _Packing:
    """Packs the result of a task, and copies the files that belong to it to the directory with its output."""

    def __init__(self, task: Task, store: ResultStore, directory: Path | None) -> None:
        known: Mapping[str, Any] = task._info or {}
        self._info = {name: known[name] for name in _KEPT if name in known}
        self._store = store
        self._directory = directory
        self._values = 0
        if 'return_value' in self._info:
            self._info['return_value'] = with_files(self._info['return_value'], self._copy_value)
        self._info['whole'] = [stream for stream, opened in _STREAMS.items()
                               if len(self._info.get(stream) or '') >= SHOWN
                               and self._copy_stream(task, stream, opened)]

    def packed(self) -> tuple[bytes, Path | None]:
        """Return the packed info, and the directory, if there is one."""
        return codec.pack(self._info), self._directory

    def _place(self) -> Path:
        if self._directory is None:
            self._directory = self._store.new_directory()
        return self._directory

    def _copy_value(self, path: str) -> str:
        self._values += 1
        name = f'value.{self._values}'
        copy(path, str(self._place() / name))
        return name

    def _copy_stream(self, task: Task, stream: str, opened: Callable[[Task], BinaryIO]) -> bool:
        """Copy a standard stream of a local task, of which the info has only the end."""
        if task._pilot is None or not task._pilot._directories.here:
            return False
        try:
            with opened(task) as source, (self._place() / stream).open('wb') as target:
                copyfileobj(source, target)
        except (OSError, PilotError, RuntimeError):   # it may be removed, or a call's, which has no file
            return False
        return True


def _remove(directory: Path) -> None:
    """Remove a directory with output, as far as possible; `rp cache prune` removes the rest."""
    with suppress(OSError):
        remove(str(directory))


def _label(task: Task) -> str:
    description = task._sparse()
    what = [description.get(names.EXECUTABLE, ''), *description.get(names.ARGUMENTS, ())]
    return ' '.join([task.uid, description.get(names.NAME, ''), *what])[:200]
