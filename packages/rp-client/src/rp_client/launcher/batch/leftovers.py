"""The files of a pilot's job on its host: writes those that it starts with, and reads those that it leaves."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rp_api.errors import PlatformError
from rp_client.bootstrap.prepare import own_functions
from rp_client.launcher.batch.shell import Shell
from rp_client.launcher.batch.transfer import send

ENDS = ('bootstrap_0.failed', 'bootstrap_0.out', 'bootstrap_0.err', 'agent_0.out', 'agent_0.err')
"""The files whose ends show how a pilot's job has ended."""

TAIL = 2048
"""Bytes of these ends."""


def place(shell: Shell, jobs: Iterable[Mapping[str, Any]]) -> str:
    """Return the script that makes the private sandboxes of jobs and writes their files."""
    return '\n'.join([own_functions(), *(_place(shell, job['sandbox'], job['files']) for job in jobs)])


def _place(shell: Shell, sandbox: str, files: Mapping[str, bytes]) -> str:
    puts = ''.join(shell.put(os.path.join(sandbox, name), content) for name, content in files.items())
    return f'rp_make_own {shlex.quote(sandbox)}\n{puts}'


def replace(sandbox: str, submissions: Iterable[str]) -> str:
    """Return the script that keeps the jobs of submissions from starting, and prints those that have started.

    The first to make the link of a submission wins: this script, or the job (`rp_claim` in stage 0).
    """
    return (f'cd {shlex.quote(sandbox)} 2>/dev/null || exit 0\nfor name in {shlex.join(submissions)}; do\n'
            'ln -s replaced "job.$name" 2>/dev/null || { test "$(readlink "job.$name")" = replaced || echo "$name"; }'
            '\ndone')


def copy_there(shell: Shell, jobs: Iterable[Mapping[str, Any]], progress: Callable[[], object]) -> None:
    """Copy local files to the sandboxes of jobs, each over the network once; raise `PlatformError` on failure."""
    targets: dict[str, list[str]] = {}
    for job in jobs:
        for name, source in job.get('copies', {}).items():
            targets.setdefault(source, []).append(shlex.quote(os.path.join(job['sandbox'], name)))
    for source, (first, *others) in targets.items():
        send(shell.command(f'umask 077 && rm -f {first} && cat >{first}'), Path(source),
             f'{source} could not be sent', progress)
        if others:
            result = shell.run('\n'.join(f'cp -p {first} {other} || exit 1' for other in others))
            if result.code:
                raise PlatformError(f'{source} could not be copied: {result.output.strip()[-500:]}')


def last_lines(shell: Shell, sandboxes: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the ends of the files that jobs have left, by sandbox and name."""
    sandboxes = list(sandboxes)
    mark = os.urandom(8).hex()
    names = ' '.join(ENDS)
    script = '\n'.join(f'for name in {names}; do file={shlex.quote(sandbox)}/$name; if test -s "$file"; then '
                       f"printf '\\n{mark} {index} %s\\n' $name; tail -c {TAIL} \"$file\"; fi; done"
                       for index, sandbox in enumerate(sandboxes))
    found: dict[str, dict[str, str]] = {}
    for part in shell.run(script).output.split(f'\n{mark} ')[1:]:
        head, _, text = part.partition('\n')
        index, name = head.split(' ')
        found.setdefault(sandboxes[int(index)], {})[name] = text
    return found
