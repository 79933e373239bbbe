"""Claims on cached requests: who runs, who waits, and what happens when an owner ends, leaves or dies."""

from __future__ import annotations

import fcntl
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from rp_client.cache import claims as module
from rp_client.cache.claims import Claims, Owner

A, B, C = b'a', b'b', b'c'


class Woken:
    """Takes note of requests that may look again."""

    def __init__(self) -> None:
        self._names: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __call__(self, name: str, *, interested: bool = True) -> Callable[[], bool]:
        def freed() -> bool:
            self._names.put(name)
            return interested

        return freed

    def next(self) -> str:
        return self._names.get(timeout=30)

    @property
    def now(self) -> list[str]:
        return [self._names.get() for _ in range(self._names.qsize())]


class Fate:
    """Decides on sessions without their process as the test says."""

    def __init__(self) -> None:
        self.follows = True
        self.asked: list[str] = []

    def follow(self, owner: Owner) -> bool:
        self.asked.append(owner['session'])
        return self.follows

    def close(self) -> None:
        """Nothing is followed."""


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Callable[..., Claims]]:
    with ExitStack() as opened:
        yield lambda *arguments: opened.enter_context(closing(Claims(tmp_path, *arguments)))


def test_first_of_equal_requests_runs(owner: Callable[..., Claims]) -> None:
    one, other = owner(), owner()
    assert one.take([A, B, A]) == {A, B}
    assert (one.take([A]), other.take([A, C, B])) == (set(), {C})
    one.release([A, C], stored=True)   # not that of another one
    assert (one.take([C]), other.take([A, B])) == (set(), {A})


def test_result_wakes_all_and_a_failure_the_next(owner: Callable[..., Claims], woken: Woken) -> None:
    one = owner()
    one.take([A, B])
    for name, interested in (('cancelled', False), ('first', True), ('second', True)):
        one.when_free(A, woken(name, interested=interested))
    one.when_free(B, woken('b'))
    one.release([A], stored=False)
    assert woken.now == ['cancelled', 'first']
    assert one.take([A]) == {A}
    one.when_free(A, woken('third'))
    one.release([A], stored=True)
    assert sorted(woken.now) == ['second', 'third']
    one.release([A, B], stored=True)
    assert woken.now == ['b']


def test_requests_wait_for_other_owners(owner: Callable[..., Claims], woken: Woken) -> None:
    one, other, third = owner(), owner(), owner()
    one.take([A, B])
    assert other.take([A, B]) == set()
    other.when_free(A, woken('a'))
    other.when_free(B, woken('b'))
    one.release([A], stored=True)
    assert woken.next() == 'a'
    one.close()   # an application that ends
    assert woken.next() == 'b'
    assert third.take([A, B]) == {A, B}


DEAD = """
import os, sys
from pathlib import Path
from rp_client.cache.claims import Claims
claims = Claims(Path(sys.argv[1]), sys.argv[2])
print(len(claims.take([b'a', b'b'])), flush=True)
sys.stdin.read()
os._exit(9)
"""


def start(directory: Path, session: str = '') -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, '-c', DEAD, str(directory), session], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b'2\n'
    return process


def test_process_that_dies_frees_its_claims(tmp_path: Path, owner: Callable[..., Claims], woken: Woken) -> None:
    one = owner()
    with start(tmp_path) as process:
        assert one.take([A]) == set()
        one.when_free(A, woken('a'))
        process.kill()
    assert woken.next() == 'a'
    assert one.take([A, B]) == {A, B}
    assert len(list((tmp_path / 'claims').glob('*.owner'))) == 1


def test_session_without_its_process_is_followed(tmp_path: Path, owner: Callable[..., Claims], woken: Woken) -> None:
    session = tmp_path / 'session'
    session.mkdir()
    fate = Fate()
    one = owner('/another', fate)
    with start(tmp_path, str(session)) as process:
        process.kill()
    assert (one.take([A]), fate.asked) == (set(), [str(session)])
    next_application = owner(str(session))   # has the claims of the former one
    assert next_application.take([A]) == {A}
    assert one.take([A]) == set()
    one.when_free(B, woken('b'))
    fate.follows = False
    assert woken.next() == 'b'
    assert one.take([A, B]) == {B}


def test_session_that_was_left_keeps_its_claims(tmp_path: Path, owner: Callable[..., Claims]) -> None:
    fate = Fate()
    left, one = owner(str(tmp_path)), owner('/another', fate)
    left.take([A])
    left.close(leave=True)
    assert (one.take([A]), fate.asked) == (set(), [str(tmp_path)])
    assert owner('/third').take([A]) == {A}   # none follows for it


def test_heartbeat_tells_where_locks_do_not(
        tmp_path: Path, owner: Callable[..., Claims], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lock(*_: object) -> None:
        raise OSError('no locks here')

    monkeypatch.setattr(fcntl, 'flock', no_lock)
    one, other = owner(), owner()
    one.take([A])
    assert other.take([A]) == set()
    path, = (path for path in (tmp_path / 'claims').glob('*.owner') if path.stem == one._token)
    old = time.time() - 2 * module.LEASE
    os.utime(path, (old, old))
    assert other.take([A]) == {A}


def test_owners_are_alive_and_told(
        owner: Callable[..., Claims], woken: Woken, monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, 'NOTICE_DELAY', 0.0)
    one, other = owner('/its/session'), owner()
    one.take([A])
    other.when_free(A, woken('a'))
    while not any('/its/session' in line for line in caplog.messages):
        time.sleep(0.01)
    one.release([A], stored=True)
    assert woken.next() == 'a'
    assert [line for line in caplog.messages if '/its/session' in line] == [
        f'cached requests wait for equal ones of process {os.getpid()} on {os.uname().nodename}, the session in '
        '/its/session']


def test_rubbish_is_removed(tmp_path: Path, owner: Callable[..., Claims]) -> None:
    with start(tmp_path) as process:
        process.kill()
    (tmp_path / 'claims' / 'old.owner').write_text('no JSON')
    one = owner()
    names = {path.stem for path in (tmp_path / 'claims').glob('*.owner')}
    assert names == {'old', one._token}
    one.close()
    one.close()
