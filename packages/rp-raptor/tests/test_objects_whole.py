"""Objects of a real master and its real workers: on its host, and on others, which `place()` pretends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pytest
from master_support import TIMEOUT, UID, running

from rp_api.errors import DeserializationError, SerializationError
from rp_api.raptor_link import master_file
from rp_api.system.shared_directory import place
from rp_raptor.client import application_link
from rp_raptor.client.futures import Executor
from rp_raptor.client.objects import ClientObjects
from rp_raptor.client.stream import stream
from rp_raptor.errors import CallLost
from rp_raptor.master.master import Master
from rp_raptor.objects.reference import ObjectRef
from rp_raptor.objects.registry import Entry, Registry
from rp_raptor.objects.transfer import Download

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module

SIZE = 3 << 20   # elements, of 8 bytes

WORKER = '''
import sys
from rp_api.system import shared_directory
shared_directory.place = lambda: sys.argv[4]
from rp_raptor.worker import manager
sys.exit(manager.main(sys.argv[1:4]))
'''


def look(argument: Any) -> tuple[float, bool, int]:
    array = argument['deep'][0]
    return float(array.sum()), array.flags.writeable, os.getpid()


def files_of(pid: int) -> set[str]:
    """The files in shared memory that a process maps."""
    text = Path(f'/proc/{pid}/maps').read_text()
    return {line.split()[-1] for line in text.splitlines() if '/radical.pilot.' in line}


def pss_of(pids: set[int], path: str) -> int:
    """The bytes of a file in the memory of processes, those of shared pages divided among them."""
    total = 0
    for pid in pids:
        counts = False
        for line in Path(f'/proc/{pid}/smaps').read_text().splitlines():
            if line.split(' ')[0].count('-') == 1:
                counts = line.endswith(path)
            elif counts and line.startswith('Pss:'):
                total += int(line.split()[1]) << 10
    return total


OWN_MEMORY = ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', 'sh']
"""Has a program run with a `/dev/shm` that others do not see, as on another host."""

APPLICATION = '''
import json, sys
from types import SimpleNamespace
import numpy
from rp_raptor.client.futures import Executor
from rp_raptor.client.objects import ClientObjects

handle = SimpleNamespace(uid='raptor.0000', state='AGENT_EXECUTING', exception=None, access=json.loads(sys.argv[1]))
ref = ClientObjects(handle).put(numpy.arange(1000000))
with Executor(handle) as executor:
    assert executor.submit(len, ref).result() == 1000000
print(ref._owned.path, flush=True)
sys.stdin.read()
'''


class Scene:
    """A master in this process, its application, and workers on pretended hosts."""

    def __init__(self, master: Master, path: Path, stack: ExitStack) -> None:
        self.master = master
        self._path = path
        self._stack = stack
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        access = master._Master__core._peers.applications_access.as_dict()   # type: ignore[attr-defined]
        self.handle: Any = SimpleNamespace(uid=UID, state='AGENT_EXECUTING', exception=None, access=access)
        self.objects = ClientObjects(self.handle)

    def worker(self, name: str, host: str, ranks: int = 2, *, apart: bool = False) -> None:
        """Start a worker that has this place, or really is `apart`, and wait for its ranks."""
        environ = {**os.environ, 'RP_TASK_ID': name, 'RP_PILOT_SANDBOX': str(self._path), 'RP_RANKS': str(ranks)}
        assert os.path.exists(master_file(str(self._path), UID))
        command = [sys.executable, '-c', WORKER, '', 'DefaultWorker', UID, host]
        if apart:
            command = [*OWN_MEMORY, sys.executable, '-m', 'rp_raptor.cli', 'worker', '', 'DefaultWorker', UID]
        process = subprocess.Popen(command, env=environ, cwd=self._path)
        self.workers[name] = process
        self._stack.callback(self._end, process)
        self.master._Master__core.workers.expect(name)   # type: ignore[attr-defined]
        self.master.wait_workers(uids=[name])

    def use(self, ref: ObjectRef, calls: int = 200) -> set[int]:
        """Call with an object; the ranks that have run the calls."""
        found = [call.result() for call in stream(self.handle, look, ({'deep': [ref]} for _ in range(calls)))]
        assert {outcome[:2] for outcome in found} == {(SIZE * (SIZE - 1) / 2, False)}
        return {pid for _, _, pid in found}

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        process.wait(TIMEOUT)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_removed(paths: set[str]) -> None:
    wait_for(lambda: not any(os.path.exists(path) for path in paths))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Without a worker."""
    with running(Master, tmp_path, monkeypatch) as (master, _), ExitStack() as stack:
        yield Scene(master, tmp_path, stack)


@pytest.fixture
def array() -> Any:
    return np.arange(SIZE, dtype='f8')


def test_one_file_in_the_memory_of_a_node(scene: Scene, array: Any) -> None:
    """All ranks of all workers map the file of the application, which counts once; it goes with the reference."""
    scene.worker('one', place())
    scene.worker('two', place())
    ref = scene.objects.put(array)
    pids: set[int] = set()
    while len(pids) < 4:
        pids |= scene.use(ref)
    paths = {path for pid in pids for path in files_of(pid)}
    assert len(paths) == 1
    path, = paths
    assert path.startswith(os.path.dirname(ref._owned.path))   # type: ignore[union-attr]
    assert array.nbytes * 0.95 < pss_of(pids, path) < array.nbytes * 1.05
    ref.release()
    assert not os.path.exists(path)


def test_every_way_to_pass_a_reference(scene: Scene, array: Any) -> None:
    scene.worker('one', place())
    ref = scene.objects.put(array)

    def last(one: Any, other: Any = None) -> float:
        return float(one[-1] if other is None else other[-1])

    with Executor(scene.handle) as executor:
        assert executor.submit(last, ref).result(TIMEOUT) == SIZE - 1
        assert executor.submit(last, None, other=ref).result(TIMEOUT) == SIZE - 1
        assert list(executor.map(last, [ref] * 5, chunksize=2)) == [SIZE - 1] * 5
        assert list(executor.map(lambda n: float(ref[n]), range(3))) == [0, 1, 2]   # type: ignore[index]
    assert [call.result() for call in stream(scene.handle, last, [ref] * 4, chunksize=2)] == [SIZE - 1] * 4
    assert scene.master.submit(last, scene.master.put_object(array)).result(TIMEOUT) == SIZE - 1


def test_a_call_keeps_its_object(scene: Scene, array: Any, tmp_path: Path) -> None:
    """Until it has a result, although the reference was released."""
    scene.worker('one', place(), ranks=1)
    gate = tmp_path / 'gate'
    os.mkfifo(gate)
    with Executor(scene.handle) as executor:
        executor.submit(lambda: open(gate).read())   # noqa: SIM115
        ref = scene.objects.put(array)
        path = ref._owned.path   # type: ignore[union-attr]
        future = executor.submit(look, {'deep': [ref]})
        ref.release()
        assert os.path.exists(path)
        with pytest.raises(SerializationError, match='was released'):
            executor.submit(look, ref).result(TIMEOUT)
        gate.write_text('')
        assert future.result(TIMEOUT)[0] == SIZE * (SIZE - 1) / 2
        wait_removed({path})


def test_each_host_gets_an_object_once(scene: Scene, array: Any) -> None:
    """Two hosts with two managers each: one transfer for each host, and no file is left when the object is dropped."""
    for name, host in (('a', 'one'), ('b', 'one'), ('c', 'two'), ('d', 'two')):
        scene.worker(name, host)
    ref = scene.objects.put(array)
    pids: set[int] = set()
    while len(pids) < 8:
        pids |= scene.use(ref)
    paths = {path for pid in pids for path in files_of(pid)}
    assert len(paths) == 2
    ref.release()
    wait_removed(paths)


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can mount a file system')
def test_a_host_with_a_memory_of_its_own(scene: Scene, array: Any) -> None:
    """Its ranks map a file that the others do not see, and that is removed with the object."""
    scene.worker('a', '', apart=True)
    ref = scene.objects.put(array)
    pids: set[int] = set()
    while len(pids) < 2:
        pids |= scene.use(ref)
    path, = {path for pid in pids for path in files_of(pid)}
    there = f'/proc/{pids.pop()}/root{path}'
    assert os.path.exists(there)
    assert not os.path.exists(path)
    ref.release()
    wait_removed({there})


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can mount a file system')
def test_large_arguments_and_results_of_a_host_with_a_memory_of_its_own(scene: Scene) -> None:
    """They travel in messages, and are the same."""
    scene.worker('a', '', apart=True)
    sizes = [5_000, 12_500, 1_000_000] * 20
    calls = {call.index: call.result() for call in stream(scene.handle, lambda numbers: numbers + 1,
                                                          (np.full(size, size) for size in sizes))}
    assert len(calls) == len(sizes)
    for index, size in enumerate(sizes):
        assert len(calls[index]) == size
        assert (calls[index] == size + 1).all()


def test_a_holder_that_is_gone(scene: Scene, array: Any) -> None:
    """A worker of its host that comes later gets the object again, from the master."""
    scene.worker('a', 'one')
    ref = scene.objects.put(array)
    scene.use(ref)
    scene.workers['a'].kill()
    scene.workers['a'].wait()
    scene.worker('b', 'one')
    scene.use(ref)


@pytest.mark.parametrize('unseen', ['the host', 'the file'])
def test_an_application_on_another_host(scene: Scene, array: Any, unseen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The master gets the content over the connection, once, and its workers map the master's file.

    So it is with a file on a disk that the master does not see.
    """
    if unseen == 'the host':
        monkeypatch.setattr(application_link, 'place', lambda: 'far away')
    else:
        monkeypatch.setattr(os, 'access', lambda *_: False)
    scene.worker('a', place())
    ref = scene.objects.put(array)
    pids = scene.use(ref)
    path, = {path for pid in pids for path in files_of(pid)}
    assert path != ref._owned.path   # type: ignore[union-attr]
    ref.release()
    wait_removed({path})


@pytest.mark.fault
def test_a_master_without_room(scene: Scene, array: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application hears of it at `put_object`."""
    monkeypatch.setattr(application_link, 'place', lambda: 'far away')

    def full(*_: Any) -> None:
        raise OSError(28, 'No space left on device')
    monkeypatch.setattr(Download, 'take', full)
    with pytest.raises(CallLost, match='cannot store it'):
        scene.objects.put(array)


@pytest.mark.fault
def test_an_object_of_an_application_that_has_ended(scene: Scene, array: Any) -> None:
    """A call of another application with its reference has an error that says so."""
    scene.worker('a', place())
    ref = scene.master.put_object(array)
    future = scene.master.submit(look, {'deep': [ref]})
    assert future.result(TIMEOUT)[0] == SIZE * (SIZE - 1) / 2
    of_this_master = scene.master._Master__core._peers.objects   # type: ignore[attr-defined]
    of_this_master.dropped(ref._owned.id)   # type: ignore[union-attr]
    with pytest.raises(DeserializationError, match=f'{UID} has no such object'):
        scene.master.submit(look, {'deep': [ref]}).result(TIMEOUT)


@pytest.mark.fault
def test_an_application_that_is_killed(scene: Scene) -> None:
    """Its objects are dropped: its own file and those of other hosts are removed."""
    scene.worker('a', 'one', ranks=1)
    application = subprocess.Popen([sys.executable, '-c', APPLICATION, json.dumps(scene.handle.access)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert application.stdout is not None
    with application:
        own = application.stdout.readline().strip()
        rank = scene.master.submit(os.getpid).result(TIMEOUT)
        copy, = files_of(rank)
        assert own != copy
        application.kill()
    wait_removed({own, os.path.dirname(own), copy})


@pytest.mark.fault
def test_a_worker_that_is_killed_while_it_sends(scene: Scene, array: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that get the object from it continue with the master, and no call is lost."""
    monkeypatch.setattr(Registry, '_serve', prefer_workers)
    scene.worker('a', 'one', ranks=1)
    ref = scene.objects.put(array)
    scene.use(ref, 5)
    scene.workers['a'].send_signal(signal.SIGSTOP)   # so that it cannot give anything
    scene.worker('b', 'two', ranks=1)
    with Executor(scene.handle) as executor:
        futures = [executor.submit(look, {'deep': [ref]}) for _ in range(20)]
        core = scene.master._Master__core   # type: ignore[attr-defined]
        wait_for(lambda: any(wish.sender == 'a' for entry in core._peers.objects._registry.entries.values()
                             for wish in entry.wishes.values()))
        scene.workers['a'].kill()
        assert {future.result(TIMEOUT)[0] for future in futures} == {SIZE * (SIZE - 1) / 2}


SERVE = Registry._serve


def prefer_workers(registry: Registry, id: bytes, entry: Entry, uid: str, sending: dict[str, int]) -> None:
    """Let a worker send, if one holds the object, instead of the master."""
    of_workers = [name for name, holder in entry.holders.items() if holder.access and name != UID]
    master = entry.holders.pop(UID) if of_workers else None
    SERVE(registry, id, entry, uid, sending)
    if master is not None:
        entry.holders[UID] = master
