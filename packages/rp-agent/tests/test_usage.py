"""Usage of processes: what the launch loop, samples of memory, ranks and the libraries of GPUs tell."""

from __future__ import annotations

import ctypes
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from executor_support import Harness, sh

from rp_agent.executor import usage
from rp_agent.executor.gpus import Gpus
from rp_agent.executor.launching import rank_script
from rp_agent.executor.launching.outcome import usage_by_notes
from rp_agent.executor.processes.launchloop import LaunchLoop, Process
from rp_agent.executor.processes.usage import MemorySample
from rp_agent.executor.run import NO_GPU_USE
from rp_agent.task import AgentTask

GIB = 1 << 30


@pytest.fixture
def null() -> Iterator[int]:
    descriptor = os.open('/dev/null', os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def ended(null: int, program: str, *, sampled: bool) -> Process:
    """A process of Python, which has ended."""
    loop = LaunchLoop()
    process = loop.start('run', 0, [sys.executable.encode(), b'-c', program.encode()], [], b'/', (null, null, null))
    process.sampled = sampled
    while not (found := loop.ended()):
        assert select.select([loop.fd], [], [], 30)[0]
    loop.close()
    assert found == [process]
    return process


def test_the_launch_loop_tells_what_a_process_has_used(null: int) -> None:
    process = ended(null, 'import time\nwhile time.process_time() < 0.3: pass\n'
                    'open("/dev/null", "wb").write(b"x" * 1_000_000)', sampled=True)
    assert 0.3 <= process.user + process.system < 30
    assert process.switches >= 1
    assert 1_000_000 <= process.written < 1_100_000
    assert process.read > 0


def test_bytes_are_looked_up_only_for_sampled_processes(null: int) -> None:
    process = ended(null, 'pass', sampled=False)
    assert (process.read, process.written, process.memory) == (-1, -1, 0)


def test_the_peak_is_known_if_it_is_above_that_of_the_agent(null: int) -> None:
    """Before it executes its program, a process shares the memory of the agent, whose peak counts for it."""
    own = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    small, large = ended(null, 'pass', sampled=True), ended(null, f'bytearray({own + 100_000_000})', sampled=True)
    assert small.peak == 0
    assert own + 100_000_000 <= large.peak < own + 300_000_000


def test_a_sample_sums_the_processes_of_a_session() -> None:
    program = 'import time; x = bytearray(50_000_000); print(flush=True); time.sleep(60)'
    command = f'{sys.executable} -c "{program}" & {sys.executable} -c "{program}"'
    with subprocess.Popen(['/bin/sh', '-c', command], stdout=subprocess.PIPE,
                          start_new_session=True) as process:
        assert process.stdout is not None
        for _ in range(2):
            process.stdout.readline()
        sample = MemorySample([process.pid, 1 << 30])
        steps = 1
        while sample.step(1):
            steps += 1
        os.killpg(process.pid, 9)
    found = sample.memory()
    assert 100_000_000 <= found[process.pid] < 300_000_000
    assert found[1 << 30] == 0
    assert steps >= 3


class Timers:
    """A loop that keeps its timers."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, seconds: float, do: Callable[..., object], *arguments: Any) -> Any:
        self.due.append((seconds, lambda: do(*arguments)))
        return SimpleNamespace(cancel=lambda: None)

    def fire(self) -> float:
        """Call the next one, and return its delay."""
        seconds, do = self.due.pop(0)
        do()
        return seconds


def a_run(pid: int, started: float, **more: Any) -> Any:
    process = SimpleNamespace(pid=pid, memory=0, sampled=False)
    task = SimpleNamespace(description={'gpus_per_rank': 0, 'slots': None, **more}, slots=more.get('slots'))
    return SimpleNamespace(started=started, plan=SimpleNamespace(launch=None), leaders={0: process}, task=task,
                           gpus=NO_GPU_USE)


def test_only_tasks_that_run_for_some_time_are_sampled() -> None:
    loop, now = Timers(), time.time()
    old, young = a_run(os.getsid(0), now - 3), a_run(os.getsid(0), now)
    running = {'old': old, 'young': young}
    sampler = usage.UsageSampler(loop, running, None)   # type: ignore[arg-type]
    sampler.watch()
    sampler.watch()
    assert len(loop.due) == 1   # one timer for all
    while (loop.due and loop.due[0][0] == 0) or old.leaders[0].memory == 0:
        loop.fire()
    assert (old.leaders[0].sampled, young.leaders[0].sampled, young.leaders[0].memory) == (True, False, 0)
    assert loop.due[0][0] >= usage.SAMPLE_INTERVAL_S
    running.clear()
    loop.fire()
    assert not loop.due   # an idle agent samples nothing
    sampler.watch()
    assert len(loop.due) == 1


def test_samples_that_cost_more_are_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most half a percent of a core, whatever is running."""
    clock, more = iter(range(1000)), iter([True, True, False])
    monkeypatch.setattr(usage, 'time', SimpleNamespace(time=time.time, thread_time=lambda: next(clock) / 10))
    monkeypatch.setattr(usage, 'MemorySample', lambda sessions: SimpleNamespace(
        step=lambda most: next(more), memory=dict))
    loop = Timers()
    sampler = usage.UsageSampler(loop, {'one': a_run(1, time.time() - 3)}, None)   # type: ignore[arg-type]
    sampler.watch()
    assert [loop.fire() for _ in range(3)] == [usage.SAMPLE_INTERVAL_S, 0, 0]   # between steps, the loop goes on
    (seconds, _), = loop.due
    assert seconds == pytest.approx(4 * 0.1 / usage.CPU_SHARE)


def test_an_error_of_a_sample_does_no_harm(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(sessions: object) -> None:
        raise OSError('no descriptors')

    monkeypatch.setattr(usage, 'MemorySample', fail)
    loop = Timers()
    sampler = usage.UsageSampler(loop, {'one': a_run(1, time.time() - 3)}, None)   # type: ignore[arg-type]
    sampler.watch()
    loop.fire()
    assert [seconds for seconds, _ in loop.due] == [usage.SAMPLE_INTERVAL_S]
    assert 'no descriptors' in caplog.text


def test_ranks_of_which_one_was_not_sampled_have_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, 'SAMPLE_AGE_S', 0.2)
    monkeypatch.setattr(usage, 'SAMPLE_INTERVAL_S', 0.2)
    harness = Harness(tmp_path)
    both = harness.task('task.000000', **sh('sleep 1.2'), ranks=2, use_mpi=False)
    one = harness.task('task.000001', **sh('test "$RP_RANK" = 1 || sleep 1.2'), ranks=2, use_mpi=False)
    harness.run(both, one)
    harness.executor.close()
    harness.loop.close()
    assert both.ran[6].keys() == {'memory', 'read', 'written'}
    assert both.ran[6]['memory'] > 0
    assert one.ran[6] == {}


# notes of ranks


def noted(path: Path, *lines: str) -> tuple[Any, ...]:
    task = AgentTask('task.0', {}, 'pilot', str(path))
    (path / f'task.0{rank_script.NOTES}').write_text(''.join(f'{line}\n' for line in lines))
    return usage_by_notes(task, 2)


def test_notes_are_summed_if_all_ranks_have_noted_their_usage(tmp_path: Path) -> None:
    first, second = 'used 1.500000 0.250000 10 1000 20 30', 'used 0.500000 0.000001 5 500 1 2'
    assert noted(tmp_path, '0 started', first, '1 7', second) == (
        2.0, 0.250001, 15, {'memory': 1500, 'read': 21, 'written': 32})
    assert rank_script.have_ended(str(tmp_path), 'task.0') == 1
    assert rank_script.read_notes(str(tmp_path), 'task.0') == (True, {1: 7})
    for lines in (['0 started', first], [first, second, second], [first, second[:-4]], [first, f'{second}{first}']):
        user, *_, more = noted(tmp_path, *lines)
        assert (user != user, more) == (True, {})   # NaN


# GPUs


@pytest.fixture(scope='module')
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ctypes.CDLL]:
    """Loads a library that stands in for another one."""
    def stand_in(name: str) -> ctypes.CDLL:
        source = Path(__file__).with_name({'libnvidia-ml.so.1': 'nvml_stand_in.c'}.get(name, 'rocm_smi_stand_in.c'))
        library = tmp_path_factory.mktemp('gpus') / name
        subprocess.run(['cc', '-w', '-shared', '-fPIC', '-o', library, source], check=True, timeout=60)
        return ctypes.CDLL(str(library))

    return stand_in


def only(name: str, load: Callable[[str], ctypes.CDLL]) -> Callable[[str], ctypes.CDLL]:
    def one(wanted: str) -> ctypes.CDLL:
        if wanted != name:
            raise OSError(wanted)
        return load(wanted)

    return one


def test_gpus_of_nvidia(load: Callable[[str], ctypes.CDLL]) -> None:
    gpus = Gpus(only('libnvidia-ml.so.1', load))
    assert gpus.usage(['0']) == (0.25, GIB)
    assert gpus.usage(['0', 'GPU-1234']) == (0.5, 4 * GIB)
    assert gpus.usage(['0', '2']) is None
    assert gpus.usage(['GPU-9']) is None
    assert gpus.usage([]) is None


def test_gpus_of_amd(load: Callable[[str], ctypes.CDLL]) -> None:
    gpus = Gpus(only('librocm_smi64.so', load))
    assert gpus.usage(['0']) == (0.4, 2 * GIB)
    assert gpus.usage(['0', '1']) is None
    assert gpus.usage(['GPU-1234']) is None


def test_gpus_without_a_library() -> None:
    assert Gpus(only('', ctypes.CDLL)).usage(['0']) is None


def test_use_of_gpus_is_that_of_a_task_which_has_them_alone(load: Callable[[str], ctypes.CDLL]) -> None:
    loop = Timers()
    alone, shares = ([{'gpus': [{'index': 1, 'occupation': share}]}] for share in (1.0, 0.5))
    runs = {'alone': a_run(1, time.time() - 3, gpus_per_rank=1, slots=alone),
            'shares': a_run(1, time.time() - 3, gpus_per_rank=0.5, slots=shares)}
    environment = SimpleNamespace(gpu_names=lambda gpus: [str(gpu) for gpu in gpus])
    sampler = usage.UsageSampler(loop, runs, environment, lambda: Gpus(only('libnvidia-ml.so.1', load)))   # type: ignore[arg-type]
    sampler.watch()
    for _ in range(2):
        while loop.fire() != 2.0:
            pass
    assert (runs['alone'].gpus, runs['shares'].gpus) == ((2, 1.5, 3 * GIB), NO_GPU_USE)
