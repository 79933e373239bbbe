"""The watch over a run of a service: when it is ready, and when it is given up; and the restart policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rp_agent.services import watch as module
from rp_agent.services.instance import restarts_of
from rp_agent.services.probes import Seen
from rp_agent.services.watch import Watch
from rp_api.description.service import RESTART
from rp_api.loop.event_loop import Loop

BAD = Seen(False, 'not there')
GOOD = Seen(True, 'found')


def watched(looks: list[Seen | Exception], *, limit: float = 0.0, liveness: bool = False) -> list[str]:
    """Watch an instance that is seen in this way, one look after the other, until the end; return the calls."""
    loop = Loop()
    loop.call_later(30, loop.stop)
    calls: list[str] = []
    left = list(looks)

    def offload(work: Any, done: Callable[[Seen], object], failed: Callable[[BaseException], object]) -> None:
        if not left:
            if limit <= 0:
                loop.stop()
            return   # a look that does not end
        seen = left.pop(0)
        loop.call_soon(failed, seen) if isinstance(seen, Exception) else loop.call_soon(done, seen)

    def given_up(reason: str) -> None:
        calls.append(reason)
        loop.stop()

    def ready(text: str) -> None:
        calls.append(f'ready: {text}')
        if not liveness:
            loop.stop()

    watch = Watch(loop, offload, lambda: GOOD, {'interval': 0.01}, limit=limit, liveness=liveness,
                  ready=ready, given_up=given_up)
    loop.run()
    watch.stop()
    loop.close()
    return calls


def test_looks_go_on_until_the_instance_is_ready() -> None:
    assert watched([BAD, BAD, OSError('x'), GOOD]) == ['ready: found']


def test_an_instance_that_is_not_ready_in_time_is_given_up() -> None:
    assert watched([BAD], limit=0.1) == ['it was not ready within 0.1 s: not there']
    assert watched([], limit=0.1) == ['it was not ready within 0.1 s: no look has ended']


def test_several_failures_in_a_row_end_an_instance_that_was_ready() -> None:
    found = watched([GOOD, BAD, BAD, GOOD, BAD, BAD, BAD, GOOD], liveness=True)
    assert found == ['ready: found', 'it does not work any more: not there']
    assert module.FAILURES == 3


def test_the_deadline_does_not_concern_an_instance_that_is_ready() -> None:
    assert watched([GOOD, GOOD, GOOD, *[BAD] * 3], limit=0.3, liveness=True)[0] == 'ready: found'


@pytest.mark.parametrize('liveness', [False, True])
def test_an_instance_can_report_that_it_is_ready(liveness: bool) -> None:
    loop, calls = Loop(), list[str]()
    watch = Watch(loop, lambda *_: calls.append('look'), lambda: GOOD, {'interval': 30.0}, limit=60.0,
                  liveness=liveness, ready=calls.append, given_up=calls.append)
    watch.signalled('here')
    watch.signalled('moved')
    loop.call_later(0.1, loop.stop)
    loop.run()
    watch.stop()
    loop.close()
    assert calls == ['here', 'moved']


@pytest.mark.parametrize(('policy', 'ready', 'expected'), [
    (None, [0], [None]),
    ({'attempts': 3, 'delay': 0.5, 'factor': 2.0, 'limit': 30.0}, [0, 0, 0, 0], [0.5, 1.0, 2.0, None]),
    ({'attempts': 4, 'delay': 1.0, 'factor': 10.0, 'limit': 30.0}, [0, 0, 0, 0], [1.0, 10.0, 30.0, 30.0]),
    ({'attempts': 1, 'delay': 0.5, 'factor': 2.0, 'limit': 30.0}, [0, 31, 30, 29], [0.5, 0.5, 0.5, None])])
def test_restarts(policy: dict[str, Any] | None, ready: list[float], expected: list[float | None]) -> None:
    restarts = restarts_of(policy or RESTART)
    assert [restarts.next(each) for each in ready] == expected
