"""Which states of tasks are still to be told."""

from __future__ import annotations

from rp_agent.reporting.state_coalescer import Unsaid


def test_a_state_has_lasted_after_a_whole_round() -> None:
    unsaid = Unsaid()
    unsaid.add(['a', 'b'], 'WAITS')
    assert unsaid.lasting(()) == {}
    unsaid.add(['b'], 'RUNS')
    assert unsaid.lasting(()) == {'a': 'WAITS'}
    assert unsaid.lasting(()) == {'b': 'RUNS'}
    assert not unsaid


def test_some_states_are_told_in_a_later_round() -> None:
    unsaid = Unsaid()
    unsaid.add(['a'], 'WAITS')
    unsaid.add(['b'], 'RUNS')
    unsaid.lasting(())
    assert unsaid.lasting({'WAITS'}) == {'b': 'RUNS'}
    assert unsaid.lasting(()) == {'a': 'WAITS'}


def test_states_that_nobody_needs_are_dropped() -> None:
    unsaid = Unsaid()
    unsaid.add(['a', 'b'], 'WAITS')
    unsaid.lasting(())
    unsaid.add(['b', 'c'], 'RUNS')
    unsaid.drop(['a', 'b', 'unknown'])
    assert unsaid.all() == {'c': 'RUNS'}
    assert not unsaid


def test_some_can_be_told_at_once() -> None:
    """The last state of each, also if there is one of an earlier round."""
    unsaid = Unsaid()
    unsaid.add(['a', 'b'], 'WAITS')
    unsaid.lasting(())
    unsaid.add(['b'], 'RUNS')
    assert unsaid.of(['a', 'b', 'unknown']) == {'a': 'WAITS', 'b': 'RUNS'}
    assert not unsaid
