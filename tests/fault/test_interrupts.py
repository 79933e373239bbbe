"""Applications that are interrupted, again and again, at any moment: they end, and nothing of them is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import processes_with, wait_until

pytestmark = pytest.mark.fault
PROGRAM = Path(__file__).with_name('interrupted.py')
TIMEOUT = 60.0


def interrupted(base: Path, when: str, number: signal.Signals, gaps: Sequence[float]) -> tuple[int, str, str]:
    """How an application ends that is interrupted like that, and what it says, when nothing of it is left."""
    process = subprocess.Popen(
        [sys.executable, PROGRAM, base, when, str(int(number)), *map(str, gaps)], cwd=base, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {'INTERRUPTED': str(base)})
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    # its pilots and hub would wait for another application for ten minutes
    wait_until(lambda: not processes_with(str(base)), 20.0, f'the end of all its processes ({err[-2000:]})')
    return process.returncode, out, err


@pytest.mark.parametrize(('number', 'gaps'), [
    (signal.SIGINT, [0]), (signal.SIGINT, [0, 0, 0]), (signal.SIGINT, [0.3, 0.01, 0.3, 0.01]),
    (signal.SIGTERM, [0.1] * 20)])
@pytest.mark.parametrize('when', ['opening', 'working', 'closing'])
def test_interrupts(base: Path, when: str, number: signal.Signals, gaps: list[float]) -> None:
    code, out, err = interrupted(base, when, number, gaps)
    assert code != 0, err
    assert ('working' in out) or when == 'opening'


@pytest.mark.parametrize('seed', range(4))
def test_interrupts_at_any_moment(base: Path, seed: int) -> None:
    """From when the modules are loaded until the application has ended."""
    choose = random.Random(seed)
    gaps = [choose.choice([0.0, 0.01, 0.05, 0.1, 0.3, 1.0]) for _ in range(choose.randint(2, 6))]
    interrupted(base, 'opening', choose.choice([signal.SIGINT, signal.SIGTERM]), [choose.uniform(0, 3), *gaps])
