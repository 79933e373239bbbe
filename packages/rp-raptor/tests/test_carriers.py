"""Managers of a worker's parts that exchange messages with the master over carriers, an MPI job."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from parts_support import Parts, a_worker_of_parts
from worker_support import DEADLINE, decoded

from rp_api.loop.event_loop import Loop
from rp_api.system.processes import kill_tree
from rp_api.system.shared_directory import shared_memory, sweep
from rp_raptor.objects.transfer import PIECE_BYTES
from rp_raptor.wire.payload import decode_result
from rp_raptor.wire.store import ValueStore
from rp_raptor.worker.carrier_job import CARRIERS_START_TIMEOUT, CarrierJob
from rp_raptor.worker.mpi_launch import Launcher, launcher_of
from rp_raptor.worker.rank_processes import STARTS

PROGRAMS = [program for name in ('mpiexec', 'mpiexec.openmpi') if (program := shutil.which(name))]


@pytest.fixture(params=PROGRAMS)
def launcher(request: pytest.FixtureRequest) -> Launcher:
    """Each MPI that is installed."""
    found = launcher_of(request.param)
    assert found
    return found


def test_calls_of_all_parts(tmp_path: Path, launcher: Launcher) -> None:
    with a_worker_of_parts(tmp_path, launcher=launcher) as worker:
        master = worker.master
        master.wait(lambda: sorted(worker.carriers()) == [0, 1, 2], 'carriers')
        for part in range(3):
            master.give(part, {100 * part + id: ['who'] for id in range(100)})
        found = [decoded(result)[0] for result in master.wait_results(*range(300))]
        assert [rank // 2 for rank in found] == [part for part in range(3) for _ in range(100)]
        assert worker.stop() == [0, 0, 0]


def noted(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()]


@pytest.mark.fault
@pytest.mark.parametrize('caller', ['', 'here', 'elsewhere'])
def test_a_carrier_dies_with_large_messages_in_flight(tmp_path: Path, launcher: Launcher, caller: str) -> None:
    """No call is lost, none runs twice, and the master notices nothing.

    Results are messages, or in files that come to the directory of the caller, or as contents of messages.
    """
    store = ValueStore()
    there = [store.results if caller == 'here' else 'elsewhere\n/'] if caller else []
    with a_worker_of_parts(tmp_path, launcher=launcher) as worker:
        master, notes = worker.master, tmp_path / 'notes'
        contents = {id: b'R' + os.urandom(1 << 20) for id in range(120)}
        for killed in (1, 0):
            for id in range(60 * (1 - killed), 60 * (2 - killed)):
                master.give(1 + id % 2, {id: ['note', str(notes), 0.02, contents[id], *there]})
            master.wait(lambda: notes.exists() and len(noted(notes)) > 20 + 60 * (1 - killed), 'calls run')   # noqa: B023
            master.wait(lambda: killed in worker.carriers(), f'carriers: {worker.errors(0)}')   # noqa: B023
            os.kill(worker.carriers()[killed], signal.SIGKILL)
        found = [decode_result(result) if caller else result for result in master.wait_results(*contents)]
        assert found == [*contents.values()]
        assert os.listdir(store.path) == []
        store.close()
        assert sorted(noted(notes)) == [*contents]
        assert master.hellos == {0: 1, 1: 1, 2: 1}
        assert 'the carrier of part 1 was killed by SIGKILL; the carriers are started again' in worker.errors(0)
        assert worker.stop() == [0, 0, 0]
        assert not master.died


@pytest.mark.fault
@pytest.mark.parametrize('victim', ['rank', 'manager', 'first manager'])
def test_no_file_is_left_of_large_results_in_flight(tmp_path: Path, victim: str) -> None:
    """Each call ends once, and the files of results go with the last process of the worker."""
    with a_worker_of_parts(tmp_path) as worker:
        master, notes = worker.master, tmp_path / 'notes'
        wait_for = master.wait_results
        for part in (1, 2):
            master.give(part, {part: ['who']})
        killed = {'rank': decoded(wait_for(1)[0])[1], 'manager': worker.processes[1].pid,
                  'first manager': worker.processes[0].pid}[victim]
        contents = {id: os.urandom(1 << 20) for id in range(10, 70)}
        for id, content in contents.items():
            master.give(1 + id % 2, {id: ['note', str(notes), 0.02, content, 'elsewhere\n/']})
        master.wait(lambda: notes.exists() and len(noted(notes)) > 20, 'calls run')
        os.kill(killed, signal.SIGKILL)
        if victim == 'first manager':   # the others drop what they have not started
            master.wait(lambda: master.hellos[1] == master.hellos[2] == 2, 'new connections')
            again = {100 + id: content for id, content in contents.items()}
            for id, content in again.items():
                master.give(1 + id % 2, {id: ['note', str(notes), 0.02, content, 'elsewhere\n/']})
            assert [decode_result(result) for result in wait_for(*again)] == [*again.values()]
        else:
            mine = [id for id in contents if victim == 'rank' or id % 2]   # the others were of the manager
            master.wait(lambda: {*mine} <= master.results.keys() | master.died.keys(), 'all calls end')
            assert len(master.died.keys() & {*mine}) <= 1
        for id in master.results.keys() & contents.keys():
            assert decode_result(master.results[id]) == contents[id]
        pids = [process.pid for process in worker.processes]
    sweep()
    assert [name for name in os.listdir(shared_memory()) for pid in pids if f'.{pid}.' in name] == []


@pytest.mark.fault
def test_a_launcher_that_does_not_notice_dead_carriers_is_ended(tmp_path: Path) -> None:
    """As one of Open MPI sometimes does not."""
    with a_worker_of_parts(tmp_path) as worker:
        worker.launch_carriers_by('"$@"; sleep 1000')
        master = worker.master
        master.wait(lambda: len(worker.carriers()) == 3, 'carriers')
        for _ in range(2):
            before = worker.carriers()
            os.kill(before[1], signal.SIGKILL)
            master.wait(lambda: len(worker.carriers()) == 3 and not {*worker.carriers().values()} & {*before.values()},   # noqa: B023
                        'others')
        time.sleep(1.5)
        assert worker.errors(0).count('started again') == 2
        master.give(2, {1: ['who']})
        master.wait_results(1)
        assert worker.stop() == [0, 0, 0]


def test_carriers_start_again_though_a_connection_is_lost_late(tmp_path: Path) -> None:
    """Those of the ended carriers are lost one after the other."""
    (tmp_path / 'job').write_text(json.dumps({'argv': ['/bin/sh', '-c', f'echo >> {tmp_path}/starts'], 'set': {},
                                              'unset': [], 'notes': str(tmp_path / 'ends'), 'signals': [15]}))
    loop, failures = Loop(), list[str]()

    def failed(reason: str) -> None:
        failures.append(reason)
        loop.stop()

    job = CarrierJob(loop, str(tmp_path / 'job'), 2, lambda _: job.works(), failed)
    deadline = loop.call_later(DEADLINE, loop.stop)
    loop.run()
    deadline.cancel()
    job.close(orderly=False)
    loop.close()
    assert len((tmp_path / 'starts').read_text()) == STARTS
    assert len(failures) == 1


@pytest.mark.fault
def test_messages_make_a_detour_while_carriers_start(tmp_path: Path) -> None:
    """Calls that run have their results, without new connections to the master, and carriers take over again."""
    with a_worker_of_parts(tmp_path) as worker:
        master, notes, gate = worker.master, tmp_path / 'notes', tmp_path / 'gate'
        contents = {id: b'R' + os.urandom(1 << 20) for id in range(40)}
        master.wait(lambda: len(worker.carriers()) == 3, 'carriers')
        worker.delay_carriers(gate)
        for id, content in contents.items():
            master.give(1 + id % 2, {id: ['note', str(notes), 0.1, content]})
        master.wait(lambda: notes.exists() and len(noted(notes)) > 4, 'calls run')
        os.kill(worker.carriers()[2], signal.SIGKILL)
        results = master.wait_results(*contents)
        assert results == [*contents.values()]
        assert not worker.carriers()
        gate.touch()
        master.wait(lambda: len(worker.carriers()) == 3, 'carriers')
        master.give(2, {100: ['who']})
        master.wait_results(100)
        assert sorted(noted(notes)) == [*contents]
        assert master.hellos == {0: 1, 1: 1, 2: 1}
        assert worker.stop() == [0, 0, 0]


@pytest.mark.fault
def test_carriers_of_a_cancelled_worker_are_not_started_again(tmp_path: Path, launcher: Launcher) -> None:
    """SIGTERM ends all processes of a node at the same time, and ranks may take a while."""
    with a_worker_of_parts(tmp_path, launcher=launcher) as worker:
        wait_for_carriers(worker, tmp_path)
        for part in range(3):
            worker.master.give(part, {part: ['stay', str(tmp_path / f'stays{part}'), 1000]})
        worker.master.wait(lambda: all((tmp_path / f'stays{part}').exists() for part in range(3)), 'ranks stay')
        kill_tree([process.pid for process in worker.processes], signal.SIGTERM)
        assert [process.wait(DEADLINE) for process in worker.processes] == [0, 0, 0]
        assert 'started again' not in worker.errors(0)   # where launchers may complain
        assert [worker.errors(part) for part in (1, 2)] == ['', '']


@pytest.mark.fault
def test_the_first_manager_dies(tmp_path: Path) -> None:
    """The others connect to the master themselves."""
    with a_worker_of_parts(tmp_path) as worker:
        worker.processes[0].kill()
        master = worker.master
        master.wait(lambda: master.hellos[1] == master.hellos[2] == 2, 'new connections')
        master.give(2, {1: ['who']})
        assert decoded(master.wait_results(1)[0])[0] in (4, 5)


@pytest.mark.fault
def test_another_manager_dies(tmp_path: Path) -> None:
    """The rest goes on over the same carriers."""
    with a_worker_of_parts(tmp_path) as worker:
        master = worker.master
        master.wait(lambda: sorted(worker.carriers()) == [0, 1, 2], 'carriers')
        worker.processes[1].kill()
        master.give(2, {1: ['who']})
        assert decoded(master.wait_results(1)[0])[0] in (4, 5)
        assert sorted(worker.carriers()) == [0, 1, 2]
        os.kill(worker.carriers()[0], signal.SIGKILL)
        master.wait(lambda: 'started again' in worker.errors(0), 'the end of the carriers')
        master.give(2, {2: ['who']})
        assert decoded(master.wait_results(2)[0])[0] in (4, 5)
        assert master.hellos[2] == 1


class Objects:
    """One object of the master, in a file, which the first manager maps and the others get from it."""

    def __init__(self, worker: Parts, path: Path, size: int, number: int = 0) -> None:
        self.id = number.to_bytes(16, 'big')
        self.number = number
        content = os.urandom(size)
        path.write_bytes(content)
        path.chmod(0o600)
        self.digest = hashlib.sha256(content).hexdigest()
        self.size = size
        self.path = str(path)
        self.wanted: list[tuple[int, bool]] = []   # by parts, and whether it may be carried
        self.held: dict[int, list[Any]] = {}       # what the parts said about it
        self.waits = False   # with answers to parts that may not have it carried
        self.master = worker.master
        self.master.listeners.append(self._heard)

    def _heard(self, part: int, operation: str, arguments: list[Any]) -> None:
        if arguments[:1] != [self.id]:
            return
        if operation == 'want_object':
            self.wanted.append((part, arguments[3]))
            if arguments[3]:
                self.at(part, '', '', {})
            elif not self.waits:
                self.answer(part)
        elif operation == 'hold_object':
            self.held[part] = arguments

    def answer(self, part: int) -> None:
        """Tell a part that may not have it carried."""
        self.at(part, 'raptor.0000', self.path, {})

    def at(self, part: int, holder: str, path: str, access: dict[str, Any]) -> None:
        self.master.tell(part, 'object_at', self.id, self.size, holder, path, access)

    def fetch(self, *parts: int) -> list[int]:
        """Let ranks ask for it, and return the numbers of these calls."""
        calls = {part: 1000 * self.number + part for part in parts}
        for part, call in calls.items():
            self.master.give(part, {call: ['fetch', self.id]})
        return [*calls.values()]

    def release(self, parts: int) -> None:
        for part in range(parts):
            self.master.tell(part, 'forget_object', self.id)


def wait_for_carriers(worker: Parts, path: Path) -> None:
    """Wait until carriers bring objects to all parts: ranks may be ready earlier, and objects come other ways then."""
    parts = len(worker.processes)
    deadline = time.monotonic() + CARRIERS_START_TIMEOUT
    for number in itertools.count(1):
        probe = Objects(worker, path / f'probe{number}', 1, number)
        worker.master.wait_results(*probe.fetch(*range(1, parts)))
        probe.release(parts)
        if len(probe.held) == parts - 1:
            return
        assert time.monotonic() < deadline, probe.held
        time.sleep(0.1)


def unnamed_files() -> list[str]:
    """Files without a name in shared memory that processes of this user have open or map."""
    found = []
    for process in Path('/proc').glob('[0-9]*'):
        for kind in ('fd', 'map_files'):
            try:
                found += [path for each in (process / kind).iterdir()
                          if (path := os.readlink(each)).startswith(f'{shared_memory()}/#')]
            except OSError:
                continue
    return found


@pytest.mark.parametrize('size', [100, 5 * PIECE_BYTES, 20 * PIECE_BYTES + 7])
def test_an_object_reaches_all_parts(tmp_path: Path, launcher: Launcher, size: int) -> None:
    with a_worker_of_parts(tmp_path, parts=5, launcher=launcher) as worker:
        wait_for_carriers(worker, tmp_path)
        master, there = worker.master, Objects(worker, tmp_path / 'object', size)
        there.fetch(*range(1, 5))
        for part, result in enumerate(master.wait_results(*range(1, 5)), 1):
            path, digest, fault = decoded(result)
            assert (digest, fault) == (there.digest, '')
            assert path == there.held[part][2] != there.path
        assert sorted(there.wanted) == [(0, False), *((part, True) for part in range(1, 5))]
        master.give(0, {0: ['fetch', there.id]})
        assert decoded(master.wait_results(0)[0]) == [there.path, there.digest, '']
        there.release(5)
        files = [Path(held[2]) for held in there.held.values()]
        master.wait(lambda: not any(file.exists() for file in files), 'the files are removed')
        master.wait(lambda: unnamed_files() == [], 'the copies of carriers are gone')
        assert worker.stop() == [0] * 5


@pytest.mark.fault
def test_a_carrier_dies_with_an_object_under_way(tmp_path: Path, launcher: Launcher) -> None:
    """Parts get the object from a holder then."""
    with a_worker_of_parts(tmp_path, parts=4, launcher=launcher) as worker:
        wait_for_carriers(worker, tmp_path)
        master, there = worker.master, Objects(worker, tmp_path / 'object', 64 * PIECE_BYTES)
        there.waits = True
        there.fetch(1, 2, 3)
        master.wait(lambda: len(there.wanted) == 4, 'the first manager asks, too')
        time.sleep(0.3)   # for the questions of the others
        killed = worker.carriers()[2]
        os.kill(killed, signal.SIGSTOP)   # it is not to have all of the object
        there.waits = False
        there.answer(0)
        time.sleep(0.5)   # for the others
        assert 2 not in there.held
        os.kill(killed, signal.SIGKILL)
        for result in master.wait_results(1, 2, 3):
            assert decoded(result)[1:] == [there.digest, '']
        assert (2, False) in there.wanted
        there.release(4)
        files = [Path(held[2]) for held in there.held.values()]
        master.wait(lambda: not any(file.exists() for file in files), 'the files are removed')
        master.wait(lambda: len(worker.carriers()) == 4, 'carriers')
        master.wait(lambda: unnamed_files() == [], 'the copies of carriers are gone')
        assert worker.stop() == [0] * 4


def test_an_object_that_the_first_manager_cannot_have(tmp_path: Path) -> None:
    with a_worker_of_parts(tmp_path) as worker:
        wait_for_carriers(worker, tmp_path)
        master, there = worker.master, Objects(worker, tmp_path / 'object', PIECE_BYTES)
        there.answer = lambda part: (   # type: ignore[method-assign]
            there.at(part, 'raptor.0000', there.path, {}) if part else
            master.tell(part, 'object_lost', there.id, 'as the test says'))
        there.fetch(1, 2)
        for result in master.wait_results(1, 2):
            assert decoded(result) == [there.path, there.digest, '']
        assert sorted(set(there.wanted)) == [(0, False), (1, False), (1, True), (2, False), (2, True)]
        assert worker.stop() == [0, 0, 0]


@pytest.mark.parametrize('command', ['exit 3', ''])
def test_carriers_that_do_not_start(tmp_path: Path, command: str) -> None:
    """All managers use connections of their own."""
    argv = ['/bin/sh', '-c', command] if command else ['/does/not/exist']
    with a_worker_of_parts(tmp_path, command=argv) as worker:
        master = worker.master
        master.give(2, {1: ['who']})
        assert decoded(master.wait_results(1)[0])[0] in (4, 5)
        assert 'messages travel over ZeroMQ' in worker.errors(0)
        assert 'it has a connection of its own' in worker.errors(1)
        assert worker.stop() == [0, 0, 0]
