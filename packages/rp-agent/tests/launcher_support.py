"""Launchers for tests: a program `mpiexec` that behaves as Hydra does as far as the agent sees it, or as it is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from executor_support import Harness

from rp_agent.executor.launching.launchers import Launchers
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Helpers

VERSION = '''case "$1" in (--version) printf 'HYDRA build details:\\n    Version:    4.1\\n'; exit 0 ;; esac
'''

# starts the ranks as Hydra does, with -np N and -hosts H, and ends with the exit code of the last one that has failed
HYDRA = VERSION + '''
echo "$*" >>"${0%/*}/calls"
ranks=$2; shift 4; code=0; pids=
rank=0; while [ "$rank" -lt "$ranks" ]; do
    PMI_RANK=$rank PMI_SIZE=$ranks "$@" & pids="$pids $!"; rank=$((rank + 1))
done
trap 'kill -TERM $pids; wait; exit 143' TERM
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
'''


def program(path: Path, text: str) -> Path:
    """Write a shell script that can be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)
    return path


@contextmanager
def launchers(tmp_path: Path, text: str = HYDRA, **platform: Any) -> Iterator[Callable[[Loop], Launchers]]:
    """Makes the launch methods of a platform whose `mpiexec` is a shell script with this text."""
    program(tmp_path / 'bin' / 'mpiexec', text)
    for name in ('env', 'sleep'):   # and no launcher of this machine
        (tmp_path / 'bin' / name).symlink_to(f'/usr/bin/{name}')
    helpers: list[Helpers] = []
    known = {'launch_methods': {'order': ['FORK', 'MPIEXEC'], 'FORK': {}, 'MPIEXEC': {}}}

    def make(loop: Loop) -> Launchers:
        helpers.append(Helpers(loop))
        environ = {'PATH': f'{tmp_path}/bin', 'SITE': 'here', 'PMIX_RANK': '7'}
        return Launchers(known | platform, {'nodes': ['localhost']}, environ, str(tmp_path), helpers[0].run)

    yield make
    for each in helpers:
        each.close(10)


def calls(harness: Harness) -> int:
    """How often the launcher was started."""
    path = harness.path / 'bin' / 'calls'
    return len(path.read_text().splitlines()) if path.exists() else 0


def lines(task: Any, name: str) -> list[str]:
    """The lines of a file in the sandbox of a task."""
    return Path(os.path.join(task.sandbox, name)).read_text().splitlines()
