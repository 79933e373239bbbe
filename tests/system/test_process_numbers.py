"""Sessions while the numbers of processes are used again, as they are on machines that start many."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import number_scenarios as scenarios
import pytest

pytestmark = pytest.mark.fault

OWN_NUMBERS = ('unshare', '--pid', '--fork', '--kill-child', '--mount-proc', 'setsid')
"""Has a program run where it alone chooses the numbers of processes, and all that it leaves ends with it."""


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can have process numbers of its own')
@pytest.mark.parametrize('scenario', [scenarios.attach_when_numbers_were_used_up])
def test_processes_are_not_mistaken(base: Path, scenario: Callable[[], None]) -> None:
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run([*OWN_NUMBERS, sys.executable, scenarios.__file__, scenario.__name__], capture_output=True,
                         text=True, timeout=150, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
