"""A worker of several parts on this host, whose managers exchange messages over carriers, and its scripted master."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leftovers import must_end
from worker_support import DEADLINE, MANAGER, PROGRAM, STANDIN, Master

from rp_api.raptor_link import CARRIER, PART, TRANSPORT, carrier_file, carriers_file
from rp_api.system.processes import sweep
from rp_api.wire.codec import pack
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.worker.mpi_launch import Launcher, find_launcher

RANKS = 2   # of each part


class PartsMaster(Master):
    """A master that knows the parts of its worker by their peers."""

    def __init__(self, sandbox: Path) -> None:
        self.parts: dict[int, bytes] = {}
        self.hellos: Counter[int] = Counter()
        self.listeners: list[Callable[[int, str, list[Any]], None]] = []   # told of messages, by part
        super().__init__(sandbox)

    def _heard(self, peer: bytes, operation: str, arguments: list[Any]) -> None:
        if operation == 'worker':
            part = arguments[4]['part']
            self.parts[part] = peer
            self.hellos[part] += 1
        for part in [part for part, known in self.parts.items() if known == peer]:
            for listener in self.listeners:
                listener(part, operation, arguments)

    def tell(self, part: int, *message: Any) -> None:
        self.listener.socket.send_multipart([self.parts[part], pack_message(list(message))])

    def give(self, part: int, calls: dict[int, list[Any]]) -> None:
        self.tell(part, 'calls', array('Q', calls), Payloads(map(pack, calls.values())), None)


class Parts:
    """A running worker, by part."""

    def __init__(self, master: PartsMaster, processes: list[subprocess.Popen[str]], errors: list[Path]) -> None:
        self.master = master
        self.processes = processes
        self._errors = errors

    def errors(self, part: int) -> str:
        return self._errors[part].read_text()

    def carriers(self) -> dict[int, int]:
        """The processes of the carriers, by part."""
        found = {}
        for path in Path('/proc').iterdir():
            try:
                environ = dict(each.split('=', 1) for each in (path / 'environ').read_text().split('\0') if '=' in each)
                python = 'python' in os.path.basename(os.readlink(path / 'exe'))
            except (OSError, ValueError):
                continue
            if python and environ.get('RP_SESSION_ID') == self._session and CARRIER in environ:
                found[int(environ[CARRIER].rpartition('.')[2])] = int(path.name)
        return found

    def delay_carriers(self, gate: Path) -> None:
        """Let those that are started from now on wait for a file."""
        self.launch_carriers_by(f'until [ -e {gate} ]; do sleep 0.05; done; exec "$@"')

    def launch_carriers_by(self, script: str) -> None:
        """Let a shell script, whose arguments are the command of the MPI, start carriers from now on."""
        path = Path(carriers_file(str(self.master.sandbox), 'worker.0000'))
        told = json.loads(path.read_text())
        path.write_text(json.dumps({**told, 'argv': ['/bin/sh', '-c', script, 'sh', *told['argv']]}))

    @property
    def _session(self) -> str:
        return f'parts.{self.master.sandbox}'

    def stop(self) -> list[int]:
        for part in self.master.parts:
            self.master.tell(part, 'stop')
        return [process.wait(DEADLINE) for process in self.processes]


def job(path: Path, parts: int, launcher: Launcher, environ: Mapping[str, str]) -> None:
    """Write the file with the command of the carriers, as the agent does."""
    carrier = f'{launcher.flavour.rank_variable}'
    ends = str(path / 'ends')
    number = (f'test ${carrier} != 0 || echo "0 started" >> {ends}; '
              f'{CARRIER}=$(printf "%s/worker.0000.carrier.%04d" {path} ${carrier}) exec "$@"')
    argv = launcher.command(parts, ['/bin/sh', '-c', number, 'carrier', sys.executable, '-c', PROGRAM], ends)
    told = launcher.environment(environ)
    Path(carriers_file(str(path), 'worker.0000')).write_text(json.dumps(
        {'argv': argv, 'set': told, 'unset': [], 'notes': ends, 'signals': [15]}))


@contextmanager
def a_worker_of_parts(path: Path, parts: int = 3, launcher: Launcher | None = None, transport: str = 'mpi',
                      command: list[str] | None = None) -> Iterator[Parts]:
    """A worker whose ranks are ready; `command` starts its carriers instead of an MPI."""
    master = PartsMaster(path)
    environ = {**os.environ, 'RP_PILOT_SANDBOX': str(path), 'RP_RANKS': str(RANKS), 'RP_SESSION_ID': f'parts.{path}',
               'PYTHONPATH': os.pathsep.join(filter(None, sys.path)), TRANSPORT: transport}
    found = launcher or find_launcher(os.environ)
    assert found
    job(path, parts, found, environ)
    if command:
        Path(carriers_file(str(path), 'worker.0000')).write_text(json.dumps(
            {'argv': command, 'set': {}, 'unset': [], 'notes': str(path / 'ends'), 'signals': [15]}))
    processes, errors, runtimes = [], [], []
    for part in range(parts):
        runtime = path / f'tmp{part}'
        runtime.mkdir()
        runtimes.append(runtime)
        errors.append(path / f'errors{part}')
        numbers = list(range(RANKS * part, RANKS * (part + 1)))
        told = {'worker': 'worker.0000', 'part': part, 'parts': parts, 'numbers': numbers, 'total': RANKS * parts,
                'files': str(path)}
        with errors[-1].open('w') as stderr:
            processes.append(subprocess.Popen(
                [sys.executable, '-c', MANAGER, STANDIN, ''], text=True, stderr=stderr, cwd=path,
                env={**environ, 'RP_TASK_ID': f'worker.0000.part.{part:04d}', 'TMPDIR': str(runtime),
                     PART: json.dumps(told)}))
    try:
        master.wait(lambda: list(master.ranks.values()) == ['ACTIVE'] * RANKS * parts, 'ranks are ready')
        yield Parts(master, processes, errors)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(DEADLINE)
            finally:
                process.kill()
                process.wait()
        master.close()
        must_end(sweep({'RP_SESSION_ID': f'parts.{path}'}, 0))
    assert [list(runtime.iterdir()) for runtime in runtimes] == [[]] * parts
    assert master.twice == []
    assert [name for part in range(parts) if os.path.exists(name := carrier_file(str(path), 'worker.0000', part))] == []
