"""A component advances entities, has it published and traced, and says when it comes and goes."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rp_api.component import Component
from rp_profiling.levels import FULL
from rp_profiling.write.detail import Detail
from rp_profiling.write.tracer import Tracer


class Entity:
    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.state = 'NEW'


class Passing(Component):
    """Hands on what it gets."""

    def put(self, tasks: list[Any]) -> None:
        self.received(tasks)
        self.advance(tasks, 'OUTPUT_PENDING')
        self.forward(tasks)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return tmp_path / 'passing.0000.prof'


@pytest.fixture
def component(profile: Path) -> Passing:
    return Passing('passing.0000', Tracer(profile, 'passing.0000'))


def rows(profile: Path) -> list[tuple[str, str, str]]:
    """Event, uid and state of each row."""
    with open(profile, encoding='utf-8', newline='') as file:
        return [(row[1], row[4], row[5]) for row in csv.reader(file) if not row[0].startswith('#')]


def test_entities_get_the_state_before_it_is_published_and_the_bulk_goes_on(component: Passing) -> None:
    published: list[tuple[list[str], str]] = []
    given: list[list[Any]] = []

    def advanced(tasks: Sequence[Any], state: str) -> None:
        assert {task.state for task in tasks} == {'OUTPUT_PENDING'}
        published.append(([task.uid for task in tasks], state))

    component.advanced = advanced
    component.output = given.append
    tasks = [Entity('a'), Entity('b')]
    component.put(tasks)
    assert published == [(['a', 'b'], 'OUTPUT_PENDING')]
    assert given == [tasks]


def test_an_empty_bulk_is_not_published(component: Passing) -> None:
    published: list[object] = []
    component.advanced = lambda tasks, state: published.append(state)
    component.advance([], 'OUTPUT_PENDING')
    assert published == []


def test_a_component_that_is_not_wired_says_so(component: Passing) -> None:
    with pytest.raises(RuntimeError, match='not wired'):
        component.advance([Entity('a')], 'OUTPUT_PENDING')
    with pytest.raises(RuntimeError, match='not wired'):
        component.output([])


def test_a_component_without_input_says_so() -> None:
    with pytest.raises(TypeError, match='Component takes no input'):
        Component('x', Tracer(None, 'x')).put([])


def test_all_is_traced(component: Passing, profile: Path) -> None:
    component.advanced = lambda tasks, state: None
    component.output = lambda tasks: None
    component.put([Entity('a'), Entity('b')])
    component.close()
    assert rows(profile)[-5:] == [
        ('component_init', 'passing.0000', ''), ('advance', 'a', 'OUTPUT_PENDING'), ('advance', 'b', 'OUTPUT_PENDING'),
        ('component_final', 'passing.0000', ''), ('END', '', '')]


def test_single_steps_are_traced_if_all_detail_is_wanted(profile: Path) -> None:
    component = Passing('passing.0000', Tracer(profile, 'passing.0000', detail=Detail(FULL)))
    component.advanced = lambda tasks, state: None
    component.output = lambda tasks: None
    component.put([Entity('a')])
    component.close()
    assert rows(profile)[-6:-2] == [
        ('get', 'a', 'NEW'), ('advance', 'a', 'OUTPUT_PENDING'), ('publish', 'a', 'OUTPUT_PENDING'),
        ('put', 'a', 'OUTPUT_PENDING')]
    assert 'a,OUTPUT_PENDING,output_queue\n' in profile.read_text()


def test_entities_that_were_ended_meanwhile_are_traced(component: Passing, profile: Path) -> None:
    component.dropped([Entity('a')])
    component.close()
    assert ('drop', 'a', 'NEW') in rows(profile)


def test_close_can_be_repeated(component: Passing, profile: Path) -> None:
    component.close()
    component.close()
    assert [row[0] for row in rows(profile)].count('component_final') == 1
