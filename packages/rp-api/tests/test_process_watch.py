"""Handles of processes and watches on peers: the end of a process is told once, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest

from rp_api.loop import process_handle
from rp_api.loop.event_loop import Loop
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system.processes import start_time
from rp_api.transport.connection import PeerWatch


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until it is killed; no descriptor may be left of it."""
    before = os.listdir('/proc/self/fd')
    with subprocess.Popen(['/bin/sleep', '1000']) as popen:
        yield popen
        popen.kill()
    assert os.listdir('/proc/self/fd') == before


def run(loop: Loop) -> None:
    """Run the loop until it is stopped, and all that is due after that."""
    loop.call_later(30, pytest.fail, 'nothing was told')
    loop.run()


def test_the_end_is_told_once(process: subprocess.Popen[bytes]) -> None:
    told = []

    def ended() -> None:
        told.append(handle.wait(0))
        loop.call_later(0.01, loop.stop)   # it would be told again in between

    handle = ProcessHandle.of_child(process.pid)
    with closing(Loop()) as loop, closing(handle):
        handle.watch(loop, ended)
        assert not handle.wait(0)
        handle.send_signal(signal.SIGKILL)
        run(loop)
    assert told == [True]


def test_a_handle_that_is_closed_tells_nothing(process: subprocess.Popen[bytes]) -> None:
    with closing(Loop()) as loop:
        handle = ProcessHandle.of_child(process.pid)
        handle.watch(loop, lambda: pytest.fail('told'))
        process.kill()
        assert handle.wait(30)
        handle.close()
        loop.call_later(0.01, loop.stop)
        run(loop)


def test_a_process_that_was_reaped_takes_no_signal(process: subprocess.Popen[bytes]) -> None:
    with closing(ProcessHandle.of_child(process.pid)) as handle:
        process.kill()
        process.wait()
        handle.send_signal(signal.SIGKILL)
    assert ProcessHandle.open(process.pid) is None


def test_a_peer_on_this_host_ends_with_its_process(process: subprocess.Popen[bytes]) -> None:
    watch = PeerWatch()
    watch.heard -= 1000
    with closing(Loop()) as loop:
        assert watch.start(loop, process.pid, start_time(process.pid), loop.stop)
        assert watch.by_process
        assert not watch.silent(100)   # a busy machine must not make it look dead
        assert not watch.ended()
        process.kill()
        run(loop)
        assert watch.ended()
        watch.stop()
    assert not watch.by_process


def test_a_peer_on_this_host_that_has_ended_already(process: subprocess.Popen[bytes]) -> None:
    with closing(Loop()) as loop:
        assert not PeerWatch().start(loop, process.pid, 1, loop.stop)


def full(pid: int, started: int | None) -> int:
    raise OSError(24, 'Too many open files')


def test_a_peer_whose_process_cannot_be_watched_ends_with_its_silence(
        process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_handle, 'open_process', full)
    watch = PeerWatch()
    with closing(Loop()) as loop:
        assert watch.start(loop, process.pid, None, loop.stop)
    assert not watch.by_process
    assert not watch.silent(100)
    watch.heard -= 1000
    assert watch.silent(100)
    watch.hear()
    assert not watch.silent(100)
