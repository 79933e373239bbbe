"""The named environments of a pilot: starts their builders, and reports which environments exist."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rp_agent.environments.published import UNREADABLE, Built, Files
from rp_agent.logs import LOG
from rp_api.description.environment import EnvSpec, files
from rp_api.errors import DescriptionError, sentence
from rp_api.logger import logger
from rp_api.loop.event_loop import Loop
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system import private, processes
from rp_api.system.host import python_program
from rp_api.system.readable import end_of

MARK = 'RP_BUILDS_ENVIRONMENT'
"""The variable with the name of the environment, in all processes that build it."""

_TAIL = 2048
"""Bytes of a builder's output that the report of a failure quotes."""

_END_TIMEOUT = 1.0
"""Seconds in which a killed builder has to end."""

_RUNS = 2
"""Number of times that a builder is started if a signal kills it."""

Done = Callable[[], object]
Failed = Callable[[str, str], object]
"""Called with the reason of a failure in a sentence, and its details."""

Distribute = Callable[[Built, Done], object]
"""Copies an environment to the nodes, then calls back."""


class _Entry:
    """An environment that is prepared: its specification, the callbacks that wait for it, and its builder.

    `served` has the callbacks for the end of the builder that runs, `waiting` those that came later. It is `busy` until
    the copies on nodes are made.
    """

    __slots__ = ('builder', 'busy', 'handle', 'name', 'ready', 'runs', 'served', 'spec', 'start_of_log', 'waiting')

    def __init__(self, name: str, spec: EnvSpec) -> None:
        self.name = name
        self.spec = spec
        self.waiting: list[tuple[Done, Failed]] = []
        self.served: list[tuple[Done, Failed]] = []
        self.ready = self.busy = False
        self.builder: subprocess.Popen[bytes] | None = None
        self.handle: ProcessHandle | None = None
        self.runs = 0
        self.start_of_log = 0


class Environments:
    """Prepares environments, each once, with at most one builder per core of this host.

    `config` is the agent's configuration, `base` the whole environment of tasks, `belongs` the variables in it that
    identify the pilot's processes, `pilot_sandbox` the sandbox that all agents of the pilot share, `reserved` has
    patterns of names of variables that no environment may set. `distribute` is called for each environment that was
    built, before tasks may use it.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, base: Mapping[str, str], belongs: Mapping[str, str],
                 pilot_sandbox: str, reserved: Iterable[str] = (), most: int | None = None,
                 distribute: Distribute = lambda built, done: done()) -> None:
        self._loop = loop
        self._belongs = dict(belongs)
        self._sandbox = pilot_sandbox
        self._request = {'base': dict(base), 'shell': config['platform'].get('shell', ''),
                         'reserved': sorted(reserved),
                         'pilot_sandbox': pilot_sandbox, 'resource_sandbox': config['resource_sandbox']}
        self._most = most or len(os.sched_getaffinity(0))
        self._entries: dict[str, _Entry] = {}
        self._queue: deque[_Entry] = deque()
        self._running: set[_Entry] = set()
        self._distribute = distribute

    def prepare(self, name: str, spec: EnvSpec, done: Done, failed: Failed) -> None:
        """Prepare an environment, then call `done()` or `failed(reason, detail)`.

        An environment that exists is not built again, unless files that its specification names have changed: a
        builder finds that out. After a failure, the next call tries again. Raises DescriptionError if an environment
        with this name has another specification.
        """
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = _Entry(name, spec)
        elif entry.spec != spec:
            raise DescriptionError(f'the environment {name!r} exists with another specification, {entry.spec}: choose '
                                   'another name')
        if entry.ready and not any(files(spec)):
            done()
            return
        entry.waiting.append((done, failed))
        self._enqueue(entry)

    def knows(self, name: str) -> bool:
        """Return whether an environment exists or is being prepared."""
        return name in self._entries

    def close(self) -> None:
        """Kill all builders and their tools."""
        running, self._running = self._running, set()
        self._queue.clear()
        self._kill([entry.name for entry in running])
        for entry in running:
            assert entry.builder is not None
            assert entry.handle is not None
            if entry.handle.wait(_END_TIMEOUT):
                self._reap(entry)
            else:   # it waits for a dead file server
                entry.handle.close()
                processes.leave(entry.builder)

    def _enqueue(self, entry: _Entry) -> None:
        if not entry.busy:
            entry.busy, entry.runs = True, 0
            self._queue.append(entry)
            self._start_next()

    def _start_next(self) -> None:
        while self._queue and len(self._running) < self._most:
            entry = self._queue.popleft()
            try:
                self._start(entry)
            except OSError as error:
                self._failed(entry, f'the builder of the environment {entry.name!r} cannot be started: '
                                    f'{sentence(error)}', '')

    def _start(self, entry: _Entry) -> None:
        entry.served += entry.waiting
        entry.waiting = []
        files = Files.of(self._sandbox, entry.name)
        private.make_directory(os.path.dirname(files.log), readable=True)
        with tempfile.TemporaryFile() as request, open(files.log, 'ab') as log:
            entry.start_of_log = log.tell()
            request.write(json.dumps({'name': entry.name, 'spec': entry.spec, **self._request}).encode())
            request.seek(0)
            # it stays in the agent's session, by which executors recognise children that are not theirs
            entry.builder = subprocess.Popen(
                python_program('rp_agent.environments.builder'), stdin=request, stdout=log, stderr=log,
                env=os.environ | self._belongs | {MARK: entry.name})
        entry.runs += 1
        entry.handle = ProcessHandle.of_child(entry.builder.pid)
        entry.handle.watch(self._loop, lambda: self._ended(entry))
        self._running.add(entry)
        logger(LOG).info('the environment %s is being built, see %s', entry.name, files.log)

    def _ended(self, entry: _Entry) -> None:
        self._running.discard(entry)
        code = self._reap(entry)
        if code:
            self._kill([entry.name])   # its tools, which keep the lock
        paths = Files.of(self._sandbox, entry.name)
        if code == 0:
            self._built(entry, paths)
        elif code > 0:
            self._failed(entry, *self._explain(entry, paths, ''))
        elif entry.runs < _RUNS:
            logger(LOG).warning('the builder of %s was killed by signal %d, it is started again', entry.name, -code)
            self._queue.append(entry)
        else:
            self._failed(entry, *self._explain(entry, paths, f'its builder was killed by signal {-code}'))
        self._start_next()

    def _explain(self, entry: _Entry, files: Files, reason: str) -> tuple[str, str]:
        """Return the reason of a failure, and its details: the end of the builder's output."""
        try:
            size = os.stat(files.log).st_size - entry.start_of_log
        except OSError:   # a tool has removed it
            size = 0
        said = end_of(files.log, max(0, min(_TAIL, size))).decode(errors='replace').strip()
        reason = reason or said.rpartition('\n')[2] or 'its builder gave no reason'
        return (f'the environment {entry.name!r} cannot be built: {reason}',
                f'see {files.log}' + (f'; its last lines:\n{said}' if said else ''))

    def _built(self, entry: _Entry, files: Files) -> None:
        try:
            built = Built.read(files.record)
        except UNREADABLE as error:
            self._failed(entry, f'the record of the environment {entry.name!r} cannot be read: {sentence(error)}', '')
            return
        self._distribute(built, lambda: self._ready(entry))

    def _ready(self, entry: _Entry) -> None:
        entry.ready = True
        logger(LOG).info('the environment %s is ready', entry.name)
        for done, _ in self._served(entry):
            done()

    def _failed(self, entry: _Entry, reason: str, detail: str) -> None:
        if not entry.ready:   # else tasks go on with what was built before
            self._entries.pop(entry.name, None)
            entry.served += entry.waiting
            entry.waiting = []
        logger(LOG).error('%s; %s', reason, detail)
        for _, failed in self._served(entry):
            failed(reason, detail)

    def _served(self, entry: _Entry) -> list[tuple[Done, Failed]]:
        """Return the callbacks to call now; the others wait for another builder if files may have changed."""
        if not any(files(entry.spec)):
            entry.served += entry.waiting
            entry.waiting = []
        served, entry.served = entry.served, []
        entry.busy = False
        if entry.waiting:
            self._enqueue(entry)
        return served

    def _kill(self, names: list[str]) -> None:
        if names:
            try:
                processes.sweep({**self._belongs, MARK: names}, signal.SIGKILL)
            except OSError as error:   # no file descriptor is left
                logger(LOG).warning('cannot look for builders of %s: %s', ', '.join(names), error)

    def _reap(self, entry: _Entry) -> int:
        """Wait for a builder that has ended or was killed, and return its exit code."""
        assert entry.builder is not None
        assert entry.handle is not None
        entry.handle.close()
        return entry.builder.wait()
