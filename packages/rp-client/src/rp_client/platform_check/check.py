"""The findings about a platform: on its definition, and on the platform itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.review import review
from rp_client.bootstrap.prepare import Client
from rp_client.launcher.batch.shell import Shell, is_remote
from rp_client.launcher.batch.transfer import receive
from rp_client.launcher.sandbox import files_endpoint
from rp_client.platform_check.back import expects_connections, listening
from rp_client.platform_check.probe import MARK, script
from rp_client.platform_check.reach import run, way

OK, NOTE, BAD = 'ok', 'note', 'bad'


class Finding(NamedTuple):
    """The result of one check: `ok`, `note` (worth knowing) or `bad` (pilots will fail)."""

    verdict: str
    name: str
    words: str


def check(config: ResourceConfig) -> Iterator[Finding]:
    """Yield the findings; leaves no files on the platform, and submits no job."""
    if config.retired:
        yield Finding(NOTE, 'retired', 'the machine does not exist any more: its definition is kept for simulations')
    questions = review(config)
    yield from (Finding(NOTE, 'definition', sentence) for sentence in questions)
    if not questions:
        yield Finding(OK, 'definition', 'no questions')
    try:
        path = way(config)
        with ExitStack() as stack:
            back = ''
            if expects_connections(config):
                try:
                    back = stack.enter_context(listening(config))
                except PlatformError as error:   # this concerns only this host
                    yield Finding(BAD, 'back', str(error))
            output = run(path, script(config, path.batch_system, Client.here(), back))
    except PlatformError as error:
        yield Finding(BAD, 'reach', str(error))
        return
    yield Finding(OK, 'reach', path.host)
    yield from findings(output)
    yield from _files(config)


def _files(config: ResourceConfig) -> Iterator[Finding]:
    """Yield the finding on file staging between this host and a platform on another host."""
    endpoint = files_endpoint(config)
    if endpoint and is_remote(config.job_manager_endpoint):
        shell = Shell(endpoint)
        try:
            receive(shell.command('command -v tar'), Path(os.devnull), f'files cannot be staged to {shell.host}')
            yield Finding(OK, 'files', shell.host)
        except PlatformError as error:
            yield Finding(NOTE, 'files', str(error))


def findings(output: str) -> Iterator[Finding]:
    """Yield the findings in the output of the script; truncated output is a finding, too."""
    lines = [line.split(' ', 3) for line in output.splitlines() if line.startswith(f'{MARK} ')]
    for line in lines:
        if len(line) == 4:
            yield Finding(*line[1:])
    if [MARK, 'end'] not in lines:
        last = lines[-1][2] if lines and len(lines[-1]) > 2 else 'the beginning'
        yield Finding(BAD, 'shell', f'the shell on the platform ended early, after {last}')
