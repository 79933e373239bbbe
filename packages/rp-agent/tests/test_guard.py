"""The parent of a sub-agent on another host: what is left when that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline_support import nothing_left, processes_of

PROGRAM = '''
import os, signal, subprocess, sys
from rp_agent.guard import guarded

def run():
    subprocess.Popen(['sleep', '100'], start_new_session=True, env={'RP_PILOT_ID': sys.argv[1]}).returncode = 0
    os.kill(os.getpid(), int(sys.argv[2])) if int(sys.argv[2]) else None
    return int(sys.argv[3])

sys.exit(guarded(run, {'RP_PILOT_ID': sys.argv[1]}))
'''


def guarded(tmp_path: Path, number: int, code: int) -> int:
    """The exit code of a guard whose child gets this signal, or ends with this code, and leaves a process."""
    return subprocess.run([sys.executable, '-W', 'ignore', '-c', PROGRAM, str(tmp_path), str(int(number)), str(code)],
                          check=False, timeout=30).returncode


@pytest.mark.parametrize(('number', 'code', 'expected'), [(signal.SIGKILL, 0, 137), (0, 1, 1)])
def test_what_a_dead_sub_agent_leaves_is_killed(tmp_path: Path, number: int, code: int, expected: int) -> None:
    assert guarded(tmp_path, number, code) == expected
    nothing_left(str(tmp_path))


def test_one_that_ends_in_order_has_left_nothing_to_look_for(tmp_path: Path) -> None:
    assert guarded(tmp_path, 0, 0) == 0
    for pid in processes_of(f'RP_PILOT_ID={tmp_path}'):
        os.kill(pid, signal.SIGKILL)
    nothing_left(str(tmp_path))
