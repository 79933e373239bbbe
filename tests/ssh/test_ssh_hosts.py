"""The hosts of the tests themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ssh_hosts import Namespaces, namespaces

KILLED = '''
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from ssh_hosts import namespaces
with namespaces(2) as hosts:
    print(hosts.prefix('h1')[1], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
'''


def bridges(hosts: Namespaces) -> str:
    return hosts.run('ip', '-br', 'link', 'show', 'type', 'bridge')


def test_what_a_killed_run_has_left_is_removed() -> None:
    tests = str(Path(__file__).parents[1])
    done = subprocess.run([sys.executable, '-c', KILLED, tests], capture_output=True, text=True)
    left = Path(done.stdout.strip().removeprefix('--net='))
    assert left.exists(), done.stderr
    with namespaces(1) as hosts:
        assert not left.exists()
        assert left.name.removesuffix('h1') not in bridges(hosts)
        ours = Path(hosts.prefix('h1')[1].removeprefix('--net='))
        assert ours.exists()
    assert not ours.exists()
