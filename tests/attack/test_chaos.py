"""Chaos in its short form: a few rounds of each kind, with few tasks. `nox -s attack` is the long one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from chaos_rounds.plan import AGENT, APPLICATION, HUB, JOBS, KILL, KINDS, RANK, REATTACHED, make_plan
from chaos_rounds.round import Round
from chaos_rounds.table import Size, Table, play
from chaos_rounds.verdict import LEFT, LOST, TWICE, UNTOLD, judge
from fault_matrix import workload
from fault_matrix.run import Plan as RunPlan
from fault_matrix.run import Run
from fault_matrix.run import Size as RunSize
from slurm_cluster import SlurmCluster, slurm_cluster

pytestmark = pytest.mark.fault

SPAN = 2.0
"""Seconds that a round with few tasks takes where nobody is in a hurry."""

TASKS = 40


@pytest.mark.parametrize(('kind', 'seed'), [('plain', 4), ('plain', 10), ('staged', 4), ('staged', 7), ('raptor', 3),
                                            ('raptor', 10), ('sweep', 1), ('sweep', 2), ('dependent', 2),
                                            ('dependent', 3), ('service', 1), ('service', 3), ('executor', 2),
                                            ('executor', 3), (REATTACHED, 3), (REATTACHED, 7)])
def test_all_promises_hold(kind: str, seed: int) -> None:
    happened, broken = play(make_plan(kind, seed), Size(TASKS, 90.0), SPAN)
    assert not any(broken.values()), f'{happened}: {broken}'


@pytest.mark.parametrize('seed', [2, 3])
def test_all_promises_hold_for_jobs(slurm: SlurmCluster, seed: int) -> None:
    happened, broken = play(make_plan(JOBS, seed), Size(TASKS, 120.0), SPAN, slurm)
    assert not any(broken.values()), f'{happened}: {broken}'


@pytest.fixture(scope='module')
def slurm() -> Iterator[SlurmCluster]:
    with slurm_cluster(nodes=3) as cluster:
        yield cluster


@pytest.fixture(scope='module')
def undisturbed() -> Iterator[Run]:
    """A round that has come to its end, and to which nothing happened."""
    wanted = RunPlan(kind=workload.STAGED, all_states=True)
    with Run(RunSize(TASKS, workload.REAL, 0.0, 90.0), wanted, 'hub', 'undisturbed') as run:
        Round(run, make_plan('staged', 1), SPAN * 1e6).play()   # it ends before anything happens
        yield run


def test_a_round_in_which_nothing_happens(undisturbed: Run) -> None:
    assert not any(judge(undisturbed).values())


@pytest.mark.parametrize(('promise', 'name', 'change'), [
    (LOST, 'marks/task.000003', lambda text: ''),
    (LOST, 'outputs/task.000003', lambda text: text[:-1]),
    (LOST, 'results.json', lambda text: text.replace('"task.000003": {"state": "DONE"',
                                                     '"task.000003": {"state": "FAILED"')),
    (LOST, 'results.json', lambda text: text.replace('"task.000003"', '"task.999999"')),
    (LOST, 'marks/task.000003.early', lambda text: 'early'),
    (TWICE, 'marks/task.000003', lambda text: text * 2),
    (LEFT, 'tmp/socket', lambda text: 'something'),
    (UNTOLD, 'told.*', lambda text: text.replace('task.000003 DONE\n', '')),
    (UNTOLD, 'told.*', lambda text: text.replace('task.000003 AGENT_EXECUTING\n', '')),
    (UNTOLD, 'told.*', lambda text: text + 'task.000003 AGENT_EXECUTING\n'),
    (UNTOLD, 'told.*', lambda text: text + 'task.000003 DONE\n'),
], ids=['never-ran', 'file', 'state', 'missing', 'early', 'twice', 'left', 'end-untold', 'state-untold', 'late',
        'repeated'])
def test_a_promise_that_does_not_hold_is_noticed(promise: str, name: str, change: Callable[[str], str],
                                                 undisturbed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('fault_matrix.run.GRACE', 0.0)
    path = next(undisturbed.directory.glob(name), undisturbed.directory / name)
    before = path.read_text() if path.exists() else None
    path.write_text(change(before or ''))
    try:
        assert path.read_text() != before
        broken = judge(undisturbed)
        assert broken[promise]
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before)
    assert not any(judge(undisturbed).values())


@pytest.mark.parametrize('kind', KINDS)
def test_plans_follow_from_kind_and_seed(kind: str) -> None:
    plans = [make_plan(kind, seed) for seed in range(200)]
    assert plans == [make_plan(kind, seed) for seed in range(200)]
    assert len({plan.events for plan in plans}) == len(plans)
    killed = [[event.victim for event in plan.events if event.action == KILL] for plan in plans]
    assert {APPLICATION, HUB} <= {victim for victims in killed for victim in victims}
    for plan, victims in zip(plans, killed, strict=True):
        assert victims.count(AGENT) <= plan.pilots - 1
        assert victims.count(RANK) <= (1 if kind == 'raptor' else 0)
        assert kind != REATTACHED or victims.count(APPLICATION) >= 2


def test_the_table_counts_what_did_not_hold() -> None:
    table = Table()
    table.add('plain', 10, ['hub-KILL'], {LOST: [], TWICE: []})
    assert not table.broken
    table.add('plain', 10, [], {LOST: ['one', 'another'], LEFT: ['a process']})
    assert list(table.lines())[2] == '| plain | 2 | 1 | 20 | 2 | 0 | 0 | 1 | 0 |'
    assert table.broken > 0


def test_numbers_of_other_processes_are_safe(undisturbed: Run) -> None:
    """A signal is sent to processes of the run only."""
    assert not undisturbed.signal(os.getpid(), signal.SIGKILL)
    assert not undisturbed.signal(2**22 + 1, signal.SIGKILL)   # no process has that number
