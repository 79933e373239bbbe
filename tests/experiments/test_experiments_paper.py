"""What the paper reports, and the workloads that are made after it."""

from __future__ import annotations

import math

import benchmarks_on_path  # noqa: F401
import pytest
from experiments import workloads
from experiments.paper import ORIGINS, Paper, Reported, read_paper
from experiments.runs import SUMMIT_CORES, SUMMIT_GPUS, all_runs, heterogeneous, strong, weak


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


def used(kind: workloads.Kind) -> tuple[int, int]:
    """Cores and GPUs of all tasks of a kind in a block."""
    ranks = kind.description.get('ranks', 1)
    return (kind.count * ranks * kind.description.get('cores_per_rank', 1),
            kind.count * ranks * kind.description.get('gpus_per_rank', 0))


def test_blocks_use_their_nodes_fully() -> None:
    cores, gpus = (sum(each) for each in zip(*map(used, workloads.BLOCK), strict=True))
    assert cores == workloads.BLOCK_NODES * SUMMIT_CORES
    assert gpus == workloads.BLOCK_NODES * SUMMIT_GPUS


def test_heterogeneous_tasks() -> None:
    tasks = workloads.heterogeneous(2 * 25, nodes=8, generations=2).tasks(seed=1)
    assert len(tasks) == 50
    assert all(500 <= task.duration <= 900 for task in tasks)
    # two blocks and a task that is left over, in each generation
    assert [task.description.get('ranks', 1) for task in tasks].count(12) == 4
    assert len({(task.description.get('ranks', 1), task.description.get('cores_per_rank', 1)) for task in tasks}) == 5


@pytest.mark.parametrize(('tasks', 'nodes', 'generations', 'sentence'), [
    (25, 8, 2, '25 tasks cannot be 2 equal generations'),
    (24, 8, 0, '24 tasks cannot be 0 equal generations'),
    (11, 8, 1, 'a generation has 11 tasks on 8 nodes'),
    (12, 3, 1, 'a generation has 12 tasks on 3 nodes'),
])
def test_workloads_that_cannot_be(tasks: int, nodes: int, generations: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        workloads.heterogeneous(tasks, nodes, generations)


def test_page_is_that_of_the_results() -> None:
    """The page in the documentation is made from the results beside it, by hand nothing is changed in it."""
    import json

    import run_experiments

    page = run_experiments.ROOT / 'docs' / 'experiments'
    results = json.loads((page / 'results.json').read_text())
    assert (page / 'README.md').read_text() == run_experiments.page(results, read_paper())
    assert {path.name for path in page.glob('*.png')} == {
        line.rpartition('](')[2].rstrip(')') for line in (page / 'README.md').read_text().splitlines()
        if line.startswith('![')}
