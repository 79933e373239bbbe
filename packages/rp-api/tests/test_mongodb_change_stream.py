"""When the change stream of the MongoDB backend listens, and when it leaves the watcher to look by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from rp_api.coordination.mongodb import connection
from rp_api.coordination.mongodb.connection import ANSWER_DELAY_S, MAX_EARLY_ANSWERS, ChangeStream
from rp_api.coordination.mongodb.server import Collection
from rp_api.coordination.mongodb.worker import Watcher as RealWatcher
from rp_api.coordination.mongodb.worker import WorkerLink

USUAL, SLOW = 0.05, 2.0
Answer = tuple[float, 'dict[str, str] | None']


class Stream:
    """A change stream that gives `answers`: seconds that it holds each of them back, and what it has then."""

    def __init__(self, answers: Sequence[Answer], clock: SimpleNamespace, closing: threading.Event) -> None:
        self.answers = list(answers)
        self.clock = clock
        self.closing = closing
        self.alive = True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.alive = False

    def try_next(self) -> dict[str, str] | None:
        seconds, event = self.answers.pop(0)
        self.clock.now += seconds
        if not self.answers:
            self.closing.set()
        return event


class Watcher:
    def __init__(self) -> None:
        self.intervals: list[float] = []
        self.calls = 0

    def slow_down(self, longest: float) -> None:
        self.intervals.append(longest)

    def call(self) -> None:
        self.calls += 1


Ring = Callable[[Sequence[Answer]], tuple[Watcher, list[Answer]]]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    """Gives the watcher and the answers that were not asked for, after a change stream has listened to a stream."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(connection, 'time', SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(connection, 'remaining', lambda deadline: max(0.0, deadline - clock.now))

    def listen(answers: Sequence[Answer]) -> tuple[Watcher, list[Answer]]:
        closing = threading.Event()
        stream = Stream(answers, clock, closing)
        watcher = Watcher()
        link, collection = SimpleNamespace(closing=closing), SimpleNamespace(watch=lambda *_, **__: stream)
        made = ChangeStream(cast(WorkerLink, link), cast(Collection, collection), ['task'], '',
                            cast(RealWatcher, watcher),
                            (USUAL, SLOW))
        made.start()
        assert made.join(30)
        return watcher, stream.answers

    return listen


HELD: Answer = (ANSWER_DELAY_S, None)
EMPTY: Answer = (0, None)
NEWS: Answer = (0, {'operationType': 'insert'})


def test_a_server_that_holds_back_its_answers_is_listened_to(ring: Ring) -> None:
    watcher, left = ring([HELD, HELD, NEWS, HELD])
    assert left == []
    assert watcher.intervals == [SLOW, USUAL]   # the second one at the end
    assert watcher.calls == 3   # for what was there before, for the news, and at the end


def test_a_server_that_answers_at_once_is_not_asked_for_ever(ring: Ring) -> None:
    watcher, left = ring([EMPTY] * (MAX_EARLY_ANSWERS + 1))
    assert left == [EMPTY]
    assert watcher.intervals == [USUAL]


def test_a_late_answer_does_not_hide_a_server_that_answers_at_once(ring: Ring) -> None:
    watcher, left = ring([HELD, *[EMPTY] * MAX_EARLY_ANSWERS, HELD])
    assert left == [HELD]
    assert watcher.intervals == [SLOW, USUAL]


def test_single_early_answers_are_forgiven(ring: Ring) -> None:
    watcher, left = ring([EMPTY, HELD, EMPTY, HELD])
    assert left == []
    assert watcher.intervals == [SLOW, USUAL]
