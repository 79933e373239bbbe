"""The procedures of a master that applications call."""

from __future__ import annotations

import sys
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from rp_raptor.master.hooks import Procedures, Request


class Answers:
    """The procedures of a master and their answers."""

    def __init__(self, *, opened: bool = True) -> None:
        self.given: SimpleQueue[tuple[int, bool, Any]] = SimpleQueue()
        self.procedures = Procedures('raptor.0000', lambda *answer: self.given.put(answer))
        if opened:
            self.procedures.open()

    def call(self, number: int, name: str, *args: Any, **kwargs: Any) -> None:
        self.procedures.call(Request(number, name, args, kwargs))

    def next(self) -> tuple[int, bool, Any]:
        return self.given.get(timeout=10)


def test_value() -> None:
    answers = Answers()
    answers.procedures.register('add', lambda one, other=1: one + other)
    answers.call(1, 'add', 2)
    assert answers.next() == (1, True, 3)
    answers.call(2, 'add', 2, other=5)
    assert answers.next() == (2, True, 7)


@pytest.mark.parametrize(('procedure', 'text'), [
    (lambda: 1 / 0, 'ZeroDivisionError: division by zero'), (lambda: sys.exit(3), 'SystemExit: 3'),
    (lambda: object(), 'cannot be sent'), (lambda one: one, 'missing 1 required positional argument')])
def test_failure(procedure: Any, text: str) -> None:
    answers = Answers()
    answers.procedures.register('fail', procedure)
    answers.call(1, 'fail')
    number, good, value = answers.next()
    assert (number, good) == (1, False)
    assert text in value


def test_unknown_procedure() -> None:
    answers = Answers()
    answers.procedures.register('add', max)
    answers.call(7, 'dance')
    assert answers.next() == (7, False, "raptor.0000 has no procedure 'dance': it has add, stop")


def test_slow_procedure_does_not_hold_up_others() -> None:
    answers, release = Answers(), threading.Event()
    answers.procedures.register('wait', lambda: release.wait(10))
    answers.procedures.register('go', release.set)
    answers.call(1, 'wait')
    answers.call(2, 'go')
    assert {answers.next(), answers.next()} == {(1, True, True), (2, True, None)}


def test_calls_wait_until_the_master_has_started() -> None:
    answers = Answers(opened=False)
    answers.call(1, 'late')
    answers.procedures.register('late', lambda: 'here')
    assert answers.given.empty()
    answers.procedures.open()
    assert answers.next() == (1, True, 'here')


@pytest.mark.parametrize('name', ['', 'stop', 7])
def test_names_that_are_refused(name: Any) -> None:
    with pytest.raises(ValueError, match='cannot be registered'):
        Answers().procedures.register(name, max)


def test_procedure_must_be_callable() -> None:
    with pytest.raises(TypeError, match='the procedure add must be a callable'):
        Answers().procedures.register('add', 3)   # type: ignore[arg-type]
