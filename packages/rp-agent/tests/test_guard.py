"""The guard of an agent or sub-agent: what is left when that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agent_support import wait_until
from pipeline_support import nothing_left, processes_of

from rp_agent.node_copies import place

# a process with a guard, which runs something for a task that leaves a child, and is killed or ends
PROGRAM = '''
import os, subprocess, sys
from rp_agent.nodes import guard

guard.start({'RP_PILOT_ID': sys.argv[1]}, os.path.abspath('copies'))
subprocess.run(['sh', '-c', 'sleep 1000 & setsid sleep 1000 & :'], env={**os.environ, 'RP_PILOT_ID': sys.argv[1]})
print('started', flush=True)
sys.stdin.read()
sys.exit(int(sys.argv[2]))
'''


class Guarded:
    """A process that leads a session and has a guard."""

    def __init__(self, path: Path, code: int) -> None:
        self.process = subprocess.Popen([sys.executable, '-c', PROGRAM, str(path), str(code)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, start_new_session=True, text=True, cwd=path)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == 'started\n'

    def __enter__(self) -> subprocess.Popen[str]:
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_what_is_left_when_the_whole_session_is_killed(tmp_path: Path) -> None:
    with Guarded(tmp_path, 0) as process:
        wait_until(lambda: len([line for line in processes_of(f'RP_PILOT_ID={tmp_path}').values()
                                if line.startswith('sleep')]) == 2, 'both children of the task')
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
        nothing_left(str(tmp_path))


@pytest.mark.parametrize('code', [0, 3])
def test_what_is_left_when_it_ends(tmp_path: Path, code: int) -> None:
    with Guarded(tmp_path, code) as process:
        process.communicate(timeout=30)
        assert process.returncode == code
        nothing_left(str(tmp_path))


def test_copies_of_environments_are_removed(tmp_path: Path) -> None:
    os.close(place.hold(str(tmp_path / 'copies')))
    (tmp_path / 'copies' / 'closed').mkdir()
    (tmp_path / 'copies' / 'closed' / 'file').touch()
    (tmp_path / 'copies' / 'closed').chmod(0o500)
    with Guarded(tmp_path, 0) as process:
        os.killpg(process.pid, signal.SIGKILL)
        wait_until(lambda: not (tmp_path / 'copies').exists(), 'the removal')
        nothing_left(str(tmp_path))


def test_a_guard_is_not_taken_for_what_it_guards(tmp_path: Path) -> None:
    """It has neither its command line, nor its environment, nor its directory."""
    with Guarded(tmp_path, 0) as process:
        wait_until(lambda: [pid for pid, line in processes_of(str(tmp_path)).items()
                            if not line.startswith('sleep')] == [process.pid], 'only the task beside the process')
        process.communicate(timeout=30)
        nothing_left(str(tmp_path))
