"""Which states of tasks are still to be told."""

from __future__ import annotations

from rp_agent.reporting.state_coalescer import StateCoalescer


def test_a_state_has_lasted_after_a_whole_round() -> None:
    coalescer = StateCoalescer()
    coalescer.add(['a', 'b'], 'WAITS')
    assert coalescer.lasting(()) == {}
    coalescer.add(['b'], 'RUNS')
    assert coalescer.lasting(()) == {'a': 'WAITS'}
    assert coalescer.lasting(()) == {'b': 'RUNS'}
    assert not coalescer


def test_some_states_are_told_in_a_later_round() -> None:
    coalescer = StateCoalescer()
    coalescer.add(['a'], 'WAITS')
    coalescer.add(['b'], 'RUNS')
    coalescer.lasting(())
    assert coalescer.lasting({'WAITS'}) == {'b': 'RUNS'}
    assert coalescer.lasting(()) == {'a': 'WAITS'}


def test_states_that_nobody_needs_are_dropped() -> None:
    coalescer = StateCoalescer()
    coalescer.add(['a', 'b'], 'WAITS')
    coalescer.lasting(())
    coalescer.add(['b', 'c'], 'RUNS')
    coalescer.drop(['a', 'b', 'unknown'])
    assert coalescer.all() == {'c': 'RUNS'}
    assert not coalescer


def test_some_can_be_told_at_once() -> None:
    """The last state of each, also if there is one of an earlier round."""
    coalescer = StateCoalescer()
    coalescer.add(['a', 'b'], 'WAITS')
    coalescer.lasting(())
    coalescer.add(['b'], 'RUNS')
    assert coalescer.of(['a', 'b', 'unknown']) == {'a': 'WAITS', 'b': 'RUNS'}
    assert not coalescer
