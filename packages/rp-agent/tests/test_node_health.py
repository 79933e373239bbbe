"""Nodes on which all tasks fail, while those on other nodes do not."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest

from rp_agent.pipeline.losses import ROW, NodeHealth
from rp_agent.task import AgentTask
from rp_api import states

NUMBERS = count()


def ended(health: NodeHealth, *nodes: int, kind: str = '', uid: str = '') -> int | None:
    task = AgentTask(uid or f'task.{next(NUMBERS)}', {}, 'pilot', '/sandbox')
    task.placement = SimpleNamespace(nodes=lambda: list(nodes))
    if kind == 'canceled':
        task.target_state = states.CANCELED
    elif kind:
        task.fail('RuntimeError', 'detail', kind)
    else:
        task.target_state = states.DONE
    return health.ended(task)


def test_a_node_on_which_all_tasks_fail_is_found() -> None:
    health = NodeHealth(2)
    for _ in range(ROW - 1):
        assert ended(health, 0, kind='signal') is None
        assert ended(health, 1) is None
    assert ended(health, 1) is None
    assert ended(health, 0, kind='exit') == 0
    health.lost(0)
    for _ in range(2 * ROW):   # the last node
        assert ended(health, 1, kind='exit') is None


def test_a_success_begins_a_new_row() -> None:
    health = NodeHealth(2)
    for number in range(5 * ROW):
        assert ended(health, 0, kind='' if number % (ROW - 1) == 0 else 'exit') is None
        assert ended(health, 1) is None


@pytest.mark.parametrize('each', [2, 3])
def test_tasks_that_fail_everywhere_are_not_blamed_on_nodes(each: int) -> None:
    health = NodeHealth(3)
    for number in range(5 * ROW):
        assert ended(health, 0, kind='exit') is None
        for node in (1, 2):
            assert ended(health, node, kind='' if number % each else 'exit') is None


def test_tasks_have_to_succeed_elsewhere_meanwhile() -> None:
    health = NodeHealth(2)
    for _ in range(5 * ROW):
        ended(health, 1)
    for _ in range(2 * ROW):
        assert ended(health, 0, kind='exit') is None
    for _ in range(ROW):
        assert ended(health, 1) is None
    assert ended(health, 0, kind='exit') == 0


@pytest.mark.parametrize('kind', ['staging', 'description', 'dependency', 'canceled', 'output', 'pilot'])
def test_failures_that_say_nothing_of_the_node_do_not_count(kind: str) -> None:
    health = NodeHealth(2)
    for _ in range(3 * ROW):
        assert ended(health, 0, kind=kind) is None
        assert ended(health, 1) is None


def test_attempts_of_one_task_count_once_and_tasks_on_several_nodes_do_not() -> None:
    health = NodeHealth(2)
    for _ in range(3 * ROW):
        assert ended(health, 0, kind='exit', uid='task.same') is None
        assert ended(health, 0, 1, kind='exit') is None
        assert ended(health, 1) is None
