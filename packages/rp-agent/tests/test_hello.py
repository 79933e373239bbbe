"""The program with which people try things out: it tells where it is, and sleeps."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / 'scripts' / 'radical-pilot-hello.sh'

pytestmark = pytest.mark.timeout(60)


def hello(*arguments: str, **environment: str) -> str:
    """What it prints with exactly this environment."""
    done = subprocess.run([PROGRAM, *arguments], env={'PATH': os.defpath} | environment, capture_output=True, text=True,
                          timeout=30, check=True)
    assert done.stderr == ''
    line, end = done.stdout.split('\n')
    assert end == ''
    return line


def test_outside_of_tasks() -> None:
    assert hello().startswith(f'hello from no task, rank 0 of 1, on {os.uname().nodename}: CPUs ')
    assert hello().endswith(', threads 1, GPUs none')


def test_a_rank_tells_what_it_has() -> None:
    line = hello('0', RP_TASK_ID='task.7', RP_RANK='2', RP_RANKS='4', OMP_NUM_THREADS='3', CUDA_VISIBLE_DEVICES='1,3')
    assert line.startswith('hello from task.7, rank 2 of 4, on ')
    assert line.endswith(', threads 3, GPUs 1,3')
    assert hello(CUDA_VISIBLE_DEVICES='', ROCR_VISIBLE_DEVICES='5').endswith('GPUs 5')


@pytest.mark.skipif('CI' not in os.environ and shutil.which('taskset') is None,
                    reason='taskset (util-linux) is not on PATH')
def test_it_tells_the_cpus_that_it_is_bound_to() -> None:
    cpu = min(os.sched_getaffinity(0))
    done = subprocess.run(['taskset', '-c', str(cpu), PROGRAM], capture_output=True, text=True, timeout=30, check=True)
    assert f': CPUs {cpu}, threads' in done.stdout


def test_it_sleeps_and_repeats_the_other_words() -> None:
    assert hello('0.01', 'one', 'two words').endswith(', one two words')
    wrong = subprocess.run([PROGRAM, 'long'], capture_output=True, text=True, timeout=30, check=False)
    assert wrong.returncode != 0
    assert 'long' in wrong.stderr
