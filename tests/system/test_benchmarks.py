"""The benchmarks run, with a handful of tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'


@pytest.mark.long
@pytest.mark.skipif(not os.path.isdir('/dev/shm'), reason='the benchmarks work in /dev/shm')
def test_throughput_of_tasks() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'tasks.py', '--count', '20', '--runs', '1'], check=True,
                          stdout=subprocess.PIPE, text=True)
    cases = [line.split('|')[1].strip() for line in done.stdout.splitlines() if line.startswith('|')]
    assert {'system', 'agent', 'C bare', 'C files', 'C agent', 'system, median'} <= set(cases)


@pytest.mark.skipif(not os.path.isdir('/dev/shm'), reason='the benchmarks work in /dev/shm')
def test_the_mongodb_backend() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'mongodb.py', '--count', '20', '--runs', '1'], check=True,
                          stdout=subprocess.PIPE, text=True)
    steps = [line.split('|')[1].strip() for line in done.stdout.splitlines() if line.startswith('|')]
    assert {'tasks in', 'tasks to the agent', 'updates out'} <= set(steps)


@pytest.mark.long
@pytest.mark.skipif(not os.path.isdir('/dev/shm'), reason='the benchmarks work in /dev/shm')
def test_growth_with_tasks_that_have_ended() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'growth.py', '--tasks', '80', '--bulk', '20'], check=True,
                          stdout=subprocess.PIPE, text=True)
    cases = [tuple(line.split('|')[1:3]) for line in done.stdout.splitlines() if line.startswith('|')]
    assert {(f' {case} ', ' application ') for case in ('kept', 'dropped', 'forgotten')} <= set(cases)


@pytest.mark.long
@pytest.mark.skipif(not os.path.isdir('/dev/shm'), reason='the benchmarks work in /dev/shm')
def test_dependencies() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'dependencies.py', '--links', '5', '--tasks', '1200',
                           '--programs', '10', '--runs', '1'], check=True, stdout=subprocess.PIPE, text=True)
    cases = [line.split('|')[1].strip() for line in done.stdout.splitlines() if line.startswith('|')]
    assert {'loop', 'chain', 'plain', 'graph', 'programs', 'application', 'hub', 'agent'} <= set(cases)


@pytest.mark.skipif(not os.path.isdir('/dev/shm'), reason='the benchmarks work in /dev/shm')
def test_sweeps() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'sweeps.py', '--tasks', '3000', '--count', '50', '--runs', '1'],
                          check=True, stdout=subprocess.PIPE, text=True)
    cases = [line.split('|')[1].strip() for line in done.stdout.splitlines() if line.startswith('|')]
    assert {'s to submit', 'bytes per task, hub', 'sweep', 'tasks'} <= set(cases)


@pytest.mark.long
def test_reading_and_checking_traces(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'analysis.py', '--tasks', '200', '--reported', '100',
                           '--runs', '1', '--work', str(tmp_path)], check=True, capture_output=True, text=True)
    assert 'check, 200 tasks' in done.stdout
    assert 'report, 100 tasks' in done.stdout


@pytest.mark.skipif(not os.path.isdir('/dev/shm'), reason='the benchmarks work in /dev/shm')
def test_function_calls() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'raptor.py', '--scale', '0.001', '--runs', '1', 'stream'],
                          check=True, stdout=subprocess.PIPE, text=True)
    figures = [line.split('|')[1].strip() for line in done.stdout.splitlines() if line.startswith('|')]
    assert 'streamed, calls/s' in figures


def test_environments_on_the_disks_of_nodes() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'environments.py', '--nodes', '2', '--module', 'msgpack',
                           'distribution'], check=True, stdout=subprocess.PIPE, text=True)
    assert 'packed and on all nodes / s' in done.stdout


@pytest.mark.long
@pytest.mark.skipif(not os.path.isdir('/dev/shm'), reason='the benchmarks work in /dev/shm')
def test_sub_agents() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'sub_agents.py', '--scale', '0.02', '--runs', '1', 'start',
                           'tree'], check=True, stdout=subprocess.PIPE, text=True)
    figures = [line.split('|')[1].strip() for line in done.stdout.splitlines() if line.startswith('|')]
    assert {'start of 2 sub-agents / s', '160 nodes: messages per task'} <= set(figures)


@pytest.mark.skipif(not os.path.isdir('/dev/shm'), reason='the benchmarks work in /dev/shm')
def test_task_schedulers() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'backfilling.py', '--tasks', '20', '--pilots', '2', '--runs',
                           '1', 'sizes'], check=True, stdout=subprocess.PIPE, text=True)
    cases = [tuple(line.split('|')[1:3]) for line in done.stdout.splitlines() if line.startswith('|')]
    assert {(' sizes ', ' round_robin '), (' sizes ', ' backfilling ')} <= set(cases)


@pytest.mark.skipif(not os.path.isdir('/dev/shm'), reason='the benchmarks work in /dev/shm')
def test_simulated_workers() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'raptor_scale.py', '--workers', '3', '--seconds', '0.1',
                           '--duration', '0.5', '--runs', '1', 'rate'], check=True, stdout=subprocess.PIPE, text=True)
    (row,) = [line.split('|') for line in done.stdout.splitlines() if line.startswith('| 3 |')]
    assert float(row[3]) > 0


def test_executors() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / 'executor.py', '--calls', '100', '--programs', '20',
                           '--runs', '1'], check=True, stdout=subprocess.PIPE, text=True)
    cases = [line.split('|')[1].strip() for line in done.stdout.splitlines() if line.startswith('|')]
    assert cases[2:] == ['calls', 'calls of RAPTOR', 'chain', 'programs', 'tasks']


def test_the_modules_of_a_task_are_counted() -> None:
    """Of three processes; what every task passes is among them."""
    done = subprocess.run([sys.executable, BENCHMARKS / 'modules.py', '--names'], check=True, stdout=subprocess.PIPE,
                          text=True, timeout=200)
    lines = done.stdout.splitlines()
    assert [line.split(':')[0] for line in lines if line.startswith('process')] == [f'process {n}' for n in (1, 2, 3)]
    assert {'rp_client.handles.task_manager', 'rp_api.coordination.hub.server',
            'rp_agent.executor.processes.launchloop'} <= {line.strip() for line in lines}
    number, *words = lines[-1].split()
    assert words == ['modules', 'for', 'a', 'plain', 'task']
    assert int(number) == len({line for line in lines if line.startswith(' ')})


@pytest.mark.parametrize('kind', ['sleep', 'nothing', 'arguments', 'results'])
def test_batches_of_plain_mpi4py(kind: str) -> None:
    """With MPICH, by its launcher beside this Python."""
    launcher = Path(sys.executable).with_name('mpiexec')
    if not launcher.exists():
        pytest.skip('no mpiexec beside this Python: pip install mpich')
    done = subprocess.run([launcher, '-n', '3', sys.executable, BENCHMARKS / 'peers/mpi_batches.py', kind, '20'],
                          check=True, stdout=subprocess.PIPE, text=True, timeout=50)
    assert float(done.stdout) > 0
