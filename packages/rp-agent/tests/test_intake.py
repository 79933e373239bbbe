"""What an agent takes in: each task once, none that was cancelled before it came, and not too many."""

from __future__ import annotations

import pytest

from rp_agent.pipeline.arrivals import HIGH_WATER_TASKS, PER_CORE, Intake
from rp_api.coordination.contract import NewTask


@pytest.fixture
def held() -> list[bool]:
    """What the coordinator was asked."""
    return []


@pytest.fixture
def intake(held: list[bool]) -> Intake:
    return Intake(held.append, 4)


def described(*uids: str) -> list[NewTask]:
    return [(uid, {}) for uid in uids]


def test_a_task_is_new_once(intake: Intake) -> None:
    assert intake.new(described('a', 'b', 'a')) == described('a', 'b')
    assert intake.new(described('b', 'c')) == described('c')


def test_a_task_that_was_cancelled_before_it_came(intake: Intake) -> None:
    """Commands overtake tasks while tasks are held."""
    intake.new(described('here'))
    intake.cancel(['here', 'later', 'never'])
    assert not intake.cancelled('here')
    assert intake.cancelled('later')
    assert not intake.cancelled('later')


def test_no_more_is_asked_for_from_the_mark_on(intake: Intake, held: list[bool]) -> None:
    """Until half of it is left: not each task that leaves is worth a message."""
    mark = HIGH_WATER_TASKS
    for tasks in (0, mark - 1, mark, mark + 1000, mark - 1, mark // 2 + 1):
        intake.in_hand(tasks)
    assert held == [True]
    for tasks in (HIGH_WATER_TASKS // 2, 0, HIGH_WATER_TASKS - 1):
        intake.in_hand(tasks)
    assert held == [True, False]
    intake.in_hand(HIGH_WATER_TASKS)
    assert held == [True, False, True]


def test_a_large_pilot_needs_more_tasks(held: list[bool]) -> None:
    cores = 1_000_000
    intake = Intake(held.append, cores)
    intake.in_hand(PER_CORE * cores - 1)
    assert held == []
    intake.in_hand(PER_CORE * cores)
    assert held == [True]
    intake.in_hand(PER_CORE * cores // 2)
    assert held == [True, False]


def test_the_mark_never_leaves_cores_without_tasks() -> None:
    """When more is asked for, there are still several tasks for each core."""
    assert PER_CORE // 2 >= 2
