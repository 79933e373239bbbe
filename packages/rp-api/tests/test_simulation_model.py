"""The virtual clock, and models of latencies."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rp_api.errors import DescriptionError
from rp_api.simulation.contract import VirtualClock
from rp_api.simulation.model import SHAPES, Cost, Model, list_models, load_model, make_model


def test_events_come_in_order_of_time_then_of_arrival() -> None:
    clock, seen = VirtualClock(), []

    def note(name: str) -> None:
        seen.append((clock.now, name))
        if name == 'first':
            clock.call_later(1.0, note, 'its own')
            clock.call_at(0.0, note, 'past')

    for when, name in ((2.0, 'later'), (1.0, 'first'), (2.0, 'latest')):
        clock.call_at(when, note, name)
    clock.run()
    assert seen == [(1.0, 'first'), (1.0, 'past'), (2.0, 'later'), (2.0, 'latest'), (2.0, 'its own')]


def test_costs_grow_with_nodes_and_tasks() -> None:
    cost = Cost(1.0, per_node=0.5, per_task=0.25)
    assert cost.mean(nodes=4, tasks=8) == 5.0
    assert cost.draw(Random(0), 4, 8) == 5.0


@pytest.mark.parametrize('shape', SHAPES)
def test_what_is_drawn_has_the_mean_and_the_spread(shape: str) -> None:
    random, cost = Random(1), Cost(100.0, spread=0.3, shape=shape)
    drawn = [cost.draw(random) for _ in range(20_000)]
    assert statistics.mean(drawn) == pytest.approx(100, rel=0.02)
    assert statistics.stdev(drawn) == pytest.approx(30, rel=0.05)
    assert min(drawn) >= 0


@pytest.mark.parametrize('name', list_models())
def test_shipped_models_say_where_their_numbers_come_from(name: str) -> None:
    model = load_model(name)
    assert model.name == name
    assert model.source


def test_a_model_is_what_its_file_says(tmp_path: Path) -> None:
    path = tmp_path / 'mine.json'
    path.write_text(json.dumps({'launch': {'constant': 2.0, 'spread': 0.5}, 'queue': 60, 'launch_rate': 10}))
    model = load_model(str(path))
    assert model == Model('mine', launch=Cost(2.0, spread=0.5), queue=Cost(60), launch_rate=10)
    assert make_model(model.as_dict()) == model
    assert model.changed(queue={'constant': 5}).queue == Cost(5)


@pytest.mark.parametrize(('values', 'sentence'), [
    ([], 'a model is a dict of its attributes'),
    ({'speed': 1}, "a model has no attribute 'speed', there are name, source, queue"),
    ({'queue': -1}, 'model.queue is -1, allowed are numbers from 0 on'),
    ({'queue': {'constant': 'long'}}, "cost.constant is 'long', allowed are numbers from 0 on"),
    ({'queue': {'mean': 1}}, 'allowed in it are constant, per_node, per_task, spread, shape'),
    ({'queue': {'constant': 1, 'shape': 'flat'}}, "cost.shape is 'flat', allowed are lognormal, normal, uniform"),
    ({'launch_rate': True}, 'model.launch_rate is True, allowed are numbers from 0 on'),
    ({'acknowledge_rate': -1}, 'model.acknowledge_rate is -1, allowed are numbers from 0 on'),
    ({'launching': 1.5}, 'model.launching is 1.5, allowed are whole numbers from 0 on'),
    ({'failures': 1.5}, 'model.failures is 1.5, allowed are shares from 0 to 1'),
    ({'launchers': 2.5}, 'model.launchers is 2.5, allowed are whole numbers from 0 on'),
    ({'launch_method': 3}, 'model.launch_method is 3, allowed are names'),
])
def test_what_is_no_model_is_refused(values: Any, sentence: str) -> None:
    with pytest.raises(DescriptionError) as error:
        make_model(values)
    assert sentence in str(error.value)


def test_unknown_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"there is no model 'theirs', there are ours, .*or name a file"):
        load_model('theirs')
    broken = tmp_path / 'broken.json'
    broken.write_text('{')
    with pytest.raises(DescriptionError, match=r'broken\.json is not valid JSON'):
        load_model(str(broken))
