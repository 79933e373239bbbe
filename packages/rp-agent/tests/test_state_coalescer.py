"""Which states of tasks are still to be told."""

from __future__ import annotations

import pytest

from rp_agent.reporting.reporter import StateCoalescer
from rp_agent.task import AgentTask


def tasks(*uids: str) -> list[AgentTask]:
    return [AgentTask(uid, {}, 'pilot', '') for uid in uids]


def test_a_state_has_lasted_after_a_whole_round() -> None:
    coalescer = StateCoalescer()
    coalescer.add(tasks('a', 'b'), 'WAITS')
    assert coalescer.lasting(()) == {}
    coalescer.add(tasks('b'), 'RUNS')
    assert coalescer.lasting(()) == {'a': 'WAITS'}
    assert coalescer.lasting(()) == {'b': 'RUNS'}
    assert not coalescer


def test_some_states_are_told_in_a_later_round() -> None:
    coalescer = StateCoalescer()
    coalescer.add(tasks('a'), 'WAITS')
    coalescer.add(tasks('b'), 'RUNS')
    coalescer.lasting(())
    assert coalescer.lasting({'WAITS'}) == {'b': 'RUNS'}
    assert coalescer.lasting(()) == {'a': 'WAITS'}


def test_states_that_nobody_needs_are_dropped() -> None:
    coalescer = StateCoalescer()
    coalescer.add(tasks('a', 'b'), 'WAITS')
    coalescer.lasting(())
    coalescer.add(tasks('b', 'c'), 'RUNS')
    coalescer.drop(tasks('a', 'b', 'unknown'))
    assert coalescer.all() == {'c': 'RUNS'}
    assert not coalescer


def test_some_can_be_told_at_once() -> None:
    """The last state of each, also if there is one of an earlier round."""
    coalescer = StateCoalescer()
    coalescer.add(tasks('a', 'b'), 'WAITS')
    coalescer.lasting(())
    coalescer.add(tasks('b'), 'RUNS')
    assert coalescer.of(['a', 'b', 'unknown']) == {'a': 'WAITS', 'b': 'RUNS'}
    assert not coalescer


def test_only_the_last_state_of_a_bulk_counts() -> None:
    coalescer = StateCoalescer()
    bulk = tasks('a', 'b')
    coalescer.add(bulk, 'WAITS')
    coalescer.add(bulk, 'RUNS')
    coalescer.add(bulk[:1], 'ENDS')
    bulk.clear()
    assert coalescer.all() == {'a': 'ENDS', 'b': 'RUNS'}


@pytest.mark.parametrize('before', [True, False])
def test_a_bulk_is_dropped_with_its_earlier_states(before: bool) -> None:
    coalescer = StateCoalescer()
    bulk = tasks('a', 'b')
    if before:
        coalescer.add(bulk[:1], 'WAITS')
        coalescer.lasting(())
        coalescer.add(bulk[1:], 'WAITS')
    coalescer.add(bulk, 'RUNS')
    coalescer.drop(bulk)
    assert not coalescer
    coalescer.add(bulk, 'RUNS')
    coalescer.drop(bulk[:1])
    assert coalescer.all() == {'b': 'RUNS'}
