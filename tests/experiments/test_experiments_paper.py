"""What the paper reports, and the workloads that are made after it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import benchmarks_on_path  # noqa: F401
import pytest
from experiments import workloads
from experiments.paper import ORIGINS, Paper, Reported, read_paper
from experiments.runs import SUMMIT_CORES, SUMMIT_GPUS, all_runs, heterogeneous, strong, weak

from rp_api.simulation.contract import SimulatedTask


def test_every_value_is_cited() -> None:
    rows = read_paper().rows
    assert len(rows) > 80
    for row in rows:
        assert row.origin in ORIGINS, row
        assert row.where, row
        assert row.value > 0, row
        assert row.spread is None or row.spread >= 0, row


def test_each_run_is_in_the_paper() -> None:
    known = {row.run for row in read_paper().rows}
    assert {run.name for run in all_runs()} <= known


def test_text_goes_before_data() -> None:
    data = Reported('1.32', 'ttx', 902.6, 3.4, 'data', 'a file')
    text = Reported('1.32', 'ttx', 922.0, 14.0, 'text', 'IV-C')
    assert Paper([data, text]).find('1.32', 'ttx') == Paper([text, data]).find('1.32', 'ttx') == text
    assert Paper([data]).find('1.32', 'ttx') == data
    assert Paper([data]).find('1.64', 'ttx') is None


def test_text_and_data_agree() -> None:
    """That of the data is the definition of TTX by which runs are compared."""
    rows = [row for row in read_paper().rows if row.figure == 'ttx']
    small = [row.value for row in rows if row.origin == 'data' and row.run in ('1.32', '1.64', '1.128')]
    assert sum(small) / 3 == pytest.approx(922, abs=1)
    largest = {row.origin: row.value for row in rows if row.run == '1.4096'}
    assert largest['data'] == pytest.approx(largest['text'], rel=0.01)


def test_spread() -> None:
    assert Reported('', '', 10.0, 1.0, 'text', '').holds(10.9) is True
    assert Reported('', '', 10.0, 1.0, 'text', '').holds(11.1) is False
    assert Reported('', '', 10.0, None, 'text', '').holds(11.1) is None


def test_sizes_are_those_of_the_paper() -> None:
    assert [(run.tasks, run.cores, run.generations) for run in weak()][-1] == (4096, 131_072, 1)
    assert [(run.tasks, run.cores, run.generations) for run in strong()] == [
        (16_384, 16_384, 32), (16_384, 32_768, 16), (16_384, 65_536, 8)]
    assert [(len(run.workload), run.allocated, run.generations) for run in heterogeneous()] == [
        (3_098, 1024, 1), (12_276, 4097, 1), (24_784, 1024, 8), (24_552, 4097, 2)]
    assert [run.model.launchers for run in heterogeneous()] == [4, 14, 4, 16]


def test_emulated_simulations_last_as_those_of_the_paper() -> None:
    tasks = workloads.bpti(2000).tasks(seed=1)
    lengths = [task.duration for task in tasks]
    mean = sum(lengths) / len(lengths)
    assert mean == pytest.approx(workloads.MEAN, abs=1)
    deviation = math.sqrt(sum((length - mean) ** 2 for length in lengths) / len(lengths))
    assert deviation == pytest.approx(workloads.DEVIATION, rel=0.1)
    assert {task.description['ranks'] for task in tasks} == {32}


def used(tasks: Sequence[SimulatedTask]) -> tuple[int, int]:
    """Cores and GPUs of all tasks together."""
    descriptions = [task.description for task in tasks]
    ranks = [each.get('ranks', 1) for each in descriptions]
    cores, gpus = (sum(count * each.get(name, default) for count, each in zip(ranks, descriptions, strict=True))
                   for name, default in (('cores_per_rank', 1), ('gpus_per_rank', 0)))
    return cores, gpus


def test_each_generation_uses_the_nodes_fully() -> None:
    tasks = workloads.heterogeneous(2 * 100, [16, 15], generations=2).tasks(seed=1)
    first, second = tasks[:100], tasks[100:]
    assert used(first) == (31 * SUMMIT_CORES, 31 * SUMMIT_GPUS)
    assert [task.description for task in first] == [task.description for task in second]
    assert all(500 <= task.duration <= 900 for task in tasks)
    # one task on two nodes in each machine, and others of many sizes that share the nodes of their machine
    assert [task.description.get('ranks', 1) for task in first].count(12) == 2
    assert len({(task.description.get('cores_per_rank', 1), task.description.get('gpus_per_rank', 0))
                for task in first}) > 30
    for number, nodes in enumerate((16, 15)):
        its = [task for task in first if task.description['partition'] == number]
        assert used(its) == (nodes * SUMMIT_CORES, nodes * SUMMIT_GPUS)


def test_tasks_of_lost_machines_run_anywhere() -> None:
    tasks = workloads.heterogeneous(60, [5, 5, 5], lost=1).tasks(seed=1)
    assert [task.description.get('partition') for task in tasks] == [0] * 20 + [1] * 20 + [None] * 20


@pytest.mark.parametrize(('tasks', 'machines', 'generations', 'sentence'), [
    (25, [8], 2, '25 tasks cannot be 2 equal generations'),
    (24, [8], 0, '24 tasks cannot be 0 equal generations'),
    (11, [6, 6], 1, 'a generation has 11 tasks on 12 nodes'),
])
def test_workloads_that_cannot_be(tasks: int, machines: list[int], generations: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        workloads.heterogeneous(tasks, machines, generations)


def test_page_is_that_of_the_results() -> None:
    """The page is what run_experiments makes from the results beside it; no one edits it by hand."""
    import json

    import run_experiments

    page = run_experiments.PAGE.parent
    results = json.loads((page / 'results.json').read_text())
    assert (page / 'README.md').read_text() == run_experiments.page(results, read_paper())
    assert {path.name for path in page.glob('*.png')} == {
        line.rpartition('](')[2].rstrip(')') for line in (page / 'README.md').read_text().splitlines()
        if line.startswith('![')}
