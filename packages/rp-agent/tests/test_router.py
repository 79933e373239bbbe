"""Routers with a real HAProxy: requests while instances, or HAProxy itself, are killed, start, and are not there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from leftovers import open_descriptors
from router_support import RouterHarness

from rp_agent.services import haproxy, router
from rp_agent.services.registry import ServiceInstance
from rp_api.errors import PlatformError
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system import shared_directory

pytestmark = pytest.mark.skipif('CI' not in os.environ and not shutil.which(
    router.PROGRAM, path=os.pathsep.join([os.environ.get('PATH', ''), *router.SYSTEM_PATH])), reason='needs HAProxy')


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RouterHarness]:
    before = open_descriptors()
    monkeypatch.setattr(tempfile, 'tempdir', tempfile.mkdtemp(prefix='rp-', dir='/tmp'))   # paths of sockets are short
    made = RouterHarness(tmp_path)
    yield made
    made.close()
    os.rmdir(tempfile.gettempdir())   # nothing is left in it
    assert made.failures == []
    assert open_descriptors() <= before


def pids(answers: list[tuple[int, bytes]]) -> list[int]:
    assert [status for status, _ in answers] == [200] * len(answers)
    return [int(body) for _, body in answers]


def test_requests_go_to_the_instances_in_turn(harness: RouterHarness) -> None:
    one, two = harness.start('one'), harness.start('two', host='localhost')
    harness.open()
    harness.until(lambda: harness.request('/')[1] == str(two.pid).encode(), 'the name is resolved')
    assert sorted(pids([harness.request('/') for _ in range(4)])) == sorted([one.pid, two.pid] * 2)


@pytest.mark.parametrize('method', ['GET', 'PUT'])
def test_an_unanswered_request_is_repeated_on_another_instance(harness: RouterHarness, method: str) -> None:
    first, second = harness.start('first'), harness.start('second')
    harness.open()
    answer = harness.later('/hold', method, b'data' if method == 'PUT' else None)
    harness.until(harness.requests, 'an instance has the request')
    victim, other = (first, second) if harness.requests()[0].endswith(str(first.pid)) else (second, first)
    victim.kill()
    harness.until(lambda: len(harness.requests()) == 2, 'the other instance has it')
    size = 4 if method == 'PUT' else 0
    assert harness.requests()[1] == f'{method} /hold {size} {other.pid}'
    other.kill()
    harness.do(harness.registry.withdraw, 'first')
    harness.do(harness.registry.withdraw, 'second')
    assert not answer.done()   # it waits for an instance: the third one


def test_a_post_that_an_instance_may_have_received_is_not_repeated(harness: RouterHarness) -> None:
    first = harness.start('first')
    harness.open()
    answer = harness.later('/hold', 'POST', b'data')
    harness.until(harness.requests, 'the instance has the request')
    harness.start('second')
    first.kill()
    assert answer.result(30)[0] == 502
    assert len(harness.requests()) == 1


def test_a_post_is_repeated_if_the_service_allows_it(harness: RouterHarness) -> None:
    first = harness.start('first')
    harness.open(retry_unsafe=True)
    answer = harness.later('/hold', 'POST', b'data')
    harness.until(harness.requests, 'the instance has the request')
    first.kill()
    harness.do(harness.registry.withdraw, 'first')
    second = harness.start('second')
    harness.until(lambda: len(harness.requests()) == 2, 'the other instance has it')
    assert harness.requests()[1] == f'POST /hold 4 {second.pid}'
    assert not answer.done()


def test_the_answer_of_an_instance_is_passed_on_even_if_it_is_an_error(harness: RouterHarness) -> None:
    harness.start('one')
    harness.open()
    assert harness.request('/status/503')[0] == 503
    assert len(harness.requests()) == 1


def test_requests_wait_while_there_is_no_instance(harness: RouterHarness) -> None:
    harness.open()
    answers = [harness.later('/', method, b'x') for method in ('GET', 'POST', 'PUT') for _ in range(3)]
    harness.until(lambda: harness.do(lambda: harness.router().pid), 'HAProxy runs')
    late = harness.start('late')
    assert pids([answer.result(30) for answer in answers]) == [late.pid] * 9


def test_requests_wait_until_a_dead_instance_listens_again(harness: RouterHarness) -> None:
    """The agent knows nothing of its death: HAProxy finds out both."""
    dead = harness.start('one')
    harness.open()
    assert pids([harness.request('/')]) == [dead.pid]
    dead.kill()
    answers = [harness.later('/', method) for method in ('GET', 'POST')]
    again = harness.start('other name', port=dead.port)   # a new instance at the address of the dead one
    assert pids([answer.result(30) for answer in answers]) == [again.pid] * 2


def test_an_instance_comes_back_at_another_port(harness: RouterHarness) -> None:
    harness.start('one').kill()
    harness.open()
    harness.do(harness.registry.withdraw, 'one')
    again = harness.start('one')
    assert pids([harness.request('/') for _ in range(3)]) == [again.pid] * 3


def test_haproxy_is_started_again_when_it_dies(harness: RouterHarness) -> None:
    harness.open()
    one = harness.start('one')
    assert pids([harness.request('/')]) == [one.pid]
    for _ in range(3):
        harness.kill_router()
        assert pids([harness.request('/', 'POST') for _ in range(2)]) == [one.pid] * 2   # the same address, no failure


def test_a_router_that_cannot_be_started_fails_with_the_last_lines(
        harness: RouterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, 'BACKOFF_S', (0.001, 5.0))
    monkeypatch.setattr(haproxy, '_TEXT', 'no such keyword\n')
    harness.open()
    harness.until(lambda: harness.failures, 'the router fails')
    (name, reason), harness.failures = harness.failures[0], []
    assert name == 'web'
    assert 'Fatal errors found in configuration.' in reason
    assert 'it was started 9 times' in reason
    with pytest.raises(ConnectionError):
        harness.request('/')


def test_without_haproxy(harness: RouterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, 'PROGRAM', 'no-such-proxy')
    with pytest.raises(PlatformError, match=r'service web has a router, for which no-such-proxy is needed'):
        harness.open()


def test_a_removed_router_accepts_nothing(harness: RouterHarness) -> None:
    one = harness.start('one')
    harness.open()
    assert pids([harness.request('/')]) == [one.pid]
    harness.do(harness.routers.remove, 'web')
    with pytest.raises(ConnectionError):
        harness.request('/')


def test_an_instance_on_an_unknown_host_gets_no_requests(harness: RouterHarness,
                                                         caplog: pytest.LogCaptureFixture) -> None:
    harness.open()
    harness.do(harness.registry.put, ServiceInstance('odd', 'web', 'no.such.host.invalid', 80))
    harness.until(lambda: 'the name cannot be resolved' in caplog.text, 'it is logged')


OWNER = '''
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from router_support import RouterHarness

harness = RouterHarness(Path({base!r}))
harness.open()
harness.until(lambda: harness.do(lambda: harness.router().pid), 'HAProxy runs')
print(harness.router().pid, flush=True)
harness._thread.join()
'''


def test_haproxy_ends_with_a_killed_agent(tmp_path: Path) -> None:
    text = OWNER.format(tests=str(Path(__file__).parent), base=str(tmp_path))
    with tempfile.TemporaryDirectory(prefix='rp-', dir='/tmp') as short:
        owner = subprocess.Popen([sys.executable, '-c', text], stdout=subprocess.PIPE,
                                 env=os.environ | {'TMPDIR': short})
        assert owner.stdout is not None
        handle = ProcessHandle.open(int(owner.stdout.readline()))
        assert handle is not None
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
        assert handle.wait(30)
        handle.close()
    left = list(Path(shared_directory.shared_memory()).glob(f'radical.pilot.*.{owner.pid}.*'))
    assert len(left) == 1
    shared_directory.sweep()   # as agents do when they start
    assert not left[0].exists()


def test_paths_of_sockets_have_to_be_short(harness: RouterHarness) -> None:
    harness.routers._directory = f'/tmp/{"long" * 20}'
    with pytest.raises(PlatformError, match=r'a shorter path than .*: set TMPDIR to one'):
        harness.routers.open('other', retry_unsafe=False)
