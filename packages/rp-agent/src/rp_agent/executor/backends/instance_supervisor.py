"""Supervisor of the instances of a launcher: starts, watches and ends them, and hands them tasks.

`fleet` decides, and this module carries out the decisions. Each start of an instance has its own number, which names
its events (`dvm_start` and so on) and its files.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from rp_agent.executor.backends import fleet
from rp_agent.executor.backends.fleet import Demand, Fleet
from rp_agent.executor.backends.launcher import InstanceLauncher, InstanceNode
from rp_agent.executor.backends.process import InstanceProcess, Processes
from rp_agent.executor.launching.environment import NodePorts
from rp_api.loop.event_loop import Loop, Timer
from rp_api.system import processes
from rp_api.system.processes import read_process
from rp_profiling.write.tracer import Tracer

_log = logging.getLogger('radical.pilot.agent')

INSTANCE = 'RP_INSTANCE'
"""Name of the variable that identifies processes of an instance."""

_TICK = 1.0
"""Seconds by which the times of files may differ from the clock."""

SHARED_MEMORY = Path('/dev/shm')


class User(Protocol):
    """The user of the instances, which carries out the decisions about tasks."""

    def launch(self, uid: str, index: int, address: str) -> None:
        """Launch the task with the instance at this address; later call `done`, `failed` or `forget`."""

    def abandon(self, uid: str, reason: str) -> None:
        """End the processes of a task whose instance has ended; then call `failed` or `done`."""

    def displace(self, uid: str, reason: str) -> None:
        """Place the task on other nodes."""

    def refuse(self, uid: str, reason: str) -> None:
        """Fail the task."""


@dataclass(slots=True)
class _Live:
    """An instance that has a process."""

    number: int
    process: InstanceProcess
    since: float
    """Time of its start, by the clock of the file system."""
    directory: str = ''
    """Its directory for temporary files."""
    address: str = ''
    timer: Timer | None = None
    overstayed: bool = False


class InstanceSupervisor:
    """The instances of one launcher, on these parts of the pilot's nodes, for the tasks of one `user`.

    `directory` is the pilot sandbox, `environment` that of the processes, `pilot` the uid under which events are
    recorded, `ports` gets lost nodes.
    """

    def __init__(self, loop: Loop, tracer: Tracer, pilot: str, launcher: InstanceLauncher, parts: Sequence[range],
                 nodes: Sequence[InstanceNode], directory: str, environment: Mapping[str, str], ports: NodePorts,
                 user: User) -> None:
        self._loop = loop
        self._tracer = tracer
        self._pilot = pilot
        self._launcher = launcher
        self.parts = tuple(parts)
        self.nodes = tuple(nodes)
        self._ports = ports
        self._user = user
        self._directory = directory
        self._environment = environment
        self._processes = Processes(loop, directory, environment)
        self._fleet = Fleet([len(part) for part in parts])
        self._live: dict[int, _Live] = {}
        self._unstarted: set[int] = set()
        self._starts = 0
        self._on_stopped: Callable[[], object] | None = None

    def __contains__(self, uid: object) -> bool:
        return uid in self._fleet

    def lives(self, uid: str) -> bool:
        """Return whether the process of the instance that runs a task is alive."""
        live = self._live.get(self._fleet.instance_of(uid))
        process = live.process.process if live is not None else None
        found = read_process(process.pid) if process is not None else None
        return found is not None and found.alive

    def index_of(self, position: int) -> int:
        """Return the index of the instance on the node at this position of the pilot."""
        return next(index for index, part in enumerate(self.parts) if position in part)

    def admit(self, demand: Demand) -> None:
        """Launch a task as soon as an instance is ready; the first task starts all instances."""
        self._do(self._fleet.start())
        self._do(self._fleet.admit(demand))

    def done(self, uid: str) -> None:
        """Note that the launch of a task has ended normally."""
        self._do(self._fleet.done(uid))

    def failed(self, uid: str, reason: str, *, blame: bool = True, started: bool = True) -> None:
        """Note that the launch of a task has failed; `blame` counts it as a fault of the instance."""
        self._do(self._fleet.failed(uid, reason, blame=blame, started=started))

    def unreachable(self, index: int, reason: str) -> None:
        """End an instance that cannot be reached; it is started again."""
        self._do(self._fleet.unreachable(index, reason))

    def forget(self, uid: str) -> None:
        """Remove a task that was ended."""
        self._do(self._fleet.forget(uid))

    def take_line(self, number: int, line: str) -> None:
        """Handle a line as output of the instance with this number."""
        for index, live in list(self._live.items()):
            if live.number == number:
                self._read_line(index, line)

    def stop(self, stopped: Callable[[], object]) -> None:
        """End all instances; `stopped()` is called when they have ended."""
        self._on_stopped = stopped
        self._do(self._fleet.stop())
        self._check_stopped()

    def close(self) -> None:
        """Kill all processes of instances."""
        for live in self._live.values():
            if live.timer is not None:
                live.timer.cancel()
        self._processes.close()
        for live in self._live.values():
            self._tidy(live)
        self._live.clear()

    def check(self) -> None:
        """Verify all invariants; raise AssertionError."""
        self._fleet.check()
        for index, instance in enumerate(self._fleet.instances):
            has_process = instance.state in (fleet.State.STARTING, fleet.State.READY, fleet.State.DRAINING,
                                             fleet.State.STOPPING)
            known = index in self._live or index in self._unstarted
            assert has_process == known, f'instance {index} is {instance.state}'

    # commands of the fleet

    def _do(self, commands: Sequence[fleet.Command]) -> None:
        for command in commands:
            if isinstance(command, fleet.Start):
                self._start(command.instance)
            elif isinstance(command, fleet.Stop):
                self._stop(command.instance)
            elif isinstance(command, fleet.Kill):
                self._live[command.instance].process.signal(signal.SIGKILL)
            elif isinstance(command, fleet.LaunchTask):
                self._user.launch(command.uid, command.instance, self._live[command.instance].address)
            elif isinstance(command, fleet.Abandon):
                self._user.abandon(command.uid, self._named(command.reason))
            elif isinstance(command, fleet.PlaceAgain):
                self._user.displace(command.uid, self._named(command.reason))
            elif isinstance(command, fleet.Refuse):
                self._user.refuse(command.uid, self._named(command.reason))
            else:   # no task may be ended before `nodes_lost` returns
                _log.error('%s', self._named(f'instance {command.instance} is lost: {command.reason}'))
                self._ports.nodes_lost(self.parts[command.instance], self._named(command.reason))

    def _named(self, reason: str) -> str:
        return f'{self._launcher.NAME}: {reason}'

    def _start(self, index: int) -> None:
        number = self._starts
        self._starts += 1
        nodes = [self.nodes[position] for position in self.parts[index]]
        self._record('dvm_start', number)
        since = time.time() - _TICK
        try:
            startup = self._launcher.startup(number, nodes)
            directory = ''
            if self._launcher.USES_TMPDIR:
                directory = os.path.join(self._environment.get('TMPDIR') or '/tmp', f'rp-{secrets.token_hex(6)}')
            own = {'TMPDIR': directory} if directory else {}
            startup = replace(startup, environment={**startup.environment, **own, INSTANCE: self._mark(number)})
            process = self._processes.start(startup, partial(self._read_line, index), partial(self._ended, index))
        except OSError as error:
            # in a later turn: the caller of this method has not finished
            self._unstarted.add(index)
            self._loop.call_soon(self._not_started, index, number, f'cannot be started: {error}')
            return
        live = self._live[index] = _Live(number, process, since, directory)
        live.timer = self._loop.call_later(self._launcher.SECONDS_TO_START, self._overdue, index)

    def _stop(self, index: int) -> None:
        if index in self._unstarted:
            return
        live = self._live[index]
        if live.timer is not None:
            live.timer.cancel()
        live.timer = self._loop.call_later(self._launcher.SECONDS_TO_STOP, self._overstayed, index)
        if self._launcher.STOP_SIGNAL:
            live.process.signal(self._launcher.STOP_SIGNAL)

    # events of processes

    def _read_line(self, index: int, line: str) -> None:
        live = self._live[index]
        _log.debug('%s %d: %s', self._launcher.NAME, live.number, line)
        if not live.address:
            live.address = self._launcher.address(line)
            if live.address:
                self._record('dvm_uri', live.number)
        if live.address and self._launcher.is_ready(line) and live.timer is not None and not self._stopping:
            live.timer.cancel()
            live.timer = None
            self._record('dvm_ready', live.number)
            # in a later turn: the line may be the last output of a process that has ended
            self._loop.call_soon(self._ready, index, live)

    def _ready(self, index: int, live: _Live) -> None:
        if self._live.get(index) is live:
            self._do(self._fleet.ready(index))

    def _ended(self, index: int, how: str) -> None:
        live = self._live.pop(index)
        if live.timer is not None:
            live.timer.cancel()
        self._tidy(live)
        self._record('dvm_fail' if live.overstayed else 'dvm_stop', live.number)
        if not self._stopping:
            _log.warning('%s', self._named(f'instance {index} {how}'))
        self._instance_ended(index, how)

    def _tidy(self, live: _Live) -> None:
        """Remove processes, files and shared memory that an instance has left on this host."""
        mark = {INSTANCE: self._mark(live.number)}
        processes.sweep(mark, signal.SIGKILL)
        if self._launcher.SEGMENTS:
            remove_unused_segments(self._launcher.SEGMENTS, live.since, mark)
        if live.directory:
            shutil.rmtree(live.directory, ignore_errors=True)

    def _not_started(self, index: int, number: int, how: str) -> None:
        self._unstarted.discard(index)
        self._record('dvm_stop', number)
        self._instance_ended(index, how)

    def _instance_ended(self, index: int, how: str) -> None:
        self._do(self._fleet.ended(index, how))
        self._check_stopped()

    def _overdue(self, index: int) -> None:
        self._live[index].timer = None
        self._do(self._fleet.overdue(index, f'was not ready within {self._launcher.SECONDS_TO_START:g} s'))

    def _overstayed(self, index: int) -> None:
        live = self._live[index]
        live.timer = None
        live.overstayed = True
        live.process.signal(signal.SIGKILL)

    @property
    def _stopping(self) -> bool:
        return self._on_stopped is not None

    def _check_stopped(self) -> None:
        if self._on_stopped is not None and self._fleet.stopped:
            self._loop.call_soon(self._on_stopped)

    def _mark(self, number: int) -> str:
        """Return the value of the variable INSTANCE, which is unique on this host."""
        return f'{self._directory}/{self._launcher.NAME}.{number:04d}'

    def _record(self, event: str, number: int) -> None:
        self._tracer.record(event, self._pilot, msg=f'dvm_id={number}')


def remove_unused_segments(prefix: str, since: float, environment: Mapping[str, str]) -> None:
    """Remove this user's segments whose names have this prefix, and that were created after `since` (file system time).

    Segments are kept if a process without the variables `environment` uses them; processes with them are being killed.
    Descriptors are read before maps, because a process opens a segment before it maps it. A process that ends loses its
    memory, and so its environment, before its descriptors, and uses nothing.
    """
    found = {str(path) for path in SHARED_MEMORY.glob(f'{prefix}*') if _is_ours(path, since)}
    for pid in [int(name) for name in os.listdir('/proc') if name.isdigit()] if found else ():
        used = found.intersection((*_open(pid), *_mapped(pid)))
        if (used and any(processes.variable(pid, name) != value for name, value in environment.items())
                and any(_mapped(pid))):
            found -= used
    for path in found:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _is_ours(path: Path, since: float) -> bool:
    with suppress(FileNotFoundError):
        about = path.stat()
        return about.st_uid == os.getuid() and about.st_ctime >= since
    return False


def _open(pid: int) -> Iterator[str]:
    with suppress(OSError):   # the process has ended, or is another user's
        for name in os.listdir(f'/proc/{pid}/fd'):
            with suppress(OSError):
                yield os.readlink(f'/proc/{pid}/fd/{name}')


def _mapped(pid: int) -> Iterator[str]:
    with suppress(OSError), open(f'/proc/{pid}/maps', encoding='utf-8', errors='replace') as file:
        for line in file:
            yield line[line.find('/'):].rstrip('\n')
