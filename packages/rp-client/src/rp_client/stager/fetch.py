"""Copies the traces of agents and tasks, and the logs of agents, to the client.

The files of all pilots on a host are copied in one transfer. An error with one host is logged as a warning; files that
were copied before it are kept, and the other hosts are not affected.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from rp_api.errors import PilotError
from rp_api.staging.directive import expand
from rp_client.stager.base import OUTWARDS, HasSandboxes, pilot_files

PROFILES = ('.prof', '.prof.gz', '.calls')
"""File name endings of traces: profiles, and records of function calls."""

LOGS = ('.log', '.out', '.err')
"""File name endings of logs and outputs."""

_log = logging.getLogger('radical.pilot.session')


class Agent(Protocol):
    """An agent with files."""

    @property
    def agent_sandbox(self) -> str:
        """The directory of its files."""


class Source(HasSandboxes, Protocol):
    """A pilot with files: that of an application, or one that a session has recorded."""

    @property
    def launched(self) -> bool:
        """True if its agent, or its job, was started."""

    @property
    def partitions(self) -> Sequence[Agent]:
        """The partitions, each with an agent of its own."""


def fetch(pilots: Iterable[Source], endings: Sequence[str], target: Path, *, keep: bool = False) -> list[str]:
    """Copy files to `<target>/<pilot>/`, with their paths relative to the sandbox, and return the copies.

    `PROFILES` copies the traces of agents and tasks, other endings only the files of agents. Pilots that were never
    launched are skipped. With `keep`, files that exist are returned and not replaced.
    """
    hosts: dict[str, list[Source]] = {}
    for pilot in pilots:
        if pilot.directories.here:
            hosts.setdefault('', []).append(pilot)
        elif pilot.launched:   # do not connect to a host on which no agent was started
            hosts.setdefault(pilot.directories.endpoint or pilot.uid, []).append(pilot)
    fetched: list[str] = []
    for together in hosts.values():
        try:
            _fetch(together, endings, target, fetched, keep=keep)
        except (PilotError, OSError) as error:
            _log.warning('traces and logs of %s are missing: %s', ', '.join(pilot.uid for pilot in together), error)
    return fetched


def _fetch(pilots: Sequence[Source], endings: Sequence[str], target: Path, fetched: list[str], *, keep: bool) -> None:
    """Copy the files of pilots on one host."""
    wanted = {pilot: list(_patterns(pilot, endings)) for pilot in pilots}
    with pilot_files(pilots[0]) as files:
        try:
            files.fetch([(pilot.directories.pilot, expand([{'source': pattern} for pattern in patterns]))
                         for pilot, patterns in wanted.items()], OUTWARDS)
        finally:   # some may have arrived before an error
            for pilot, patterns in wanted.items():
                source = Path(files.of(pilot.directories.pilot).sandboxes.task)
                for path in _found(source, patterns):
                    copy = target / pilot.uid / path.relative_to(source)
                    fetched.append(str(copy) if keep and copy.exists() else _copy(path, copy))


def _patterns(pilot: Source, endings: Sequence[str]) -> Iterator[str]:
    """Yield patterns for the files of a pilot, relative to its sandbox."""
    parts = [os.path.relpath(part.agent_sandbox, pilot.directories.pilot) for part in pilot.partitions]
    for ending in endings:
        places = ['*'] if ending in PROFILES else parts
        yield from (os.path.join(place, f'*{ending}') for place in ('', *places))


def _found(directory: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted(path for pattern in patterns for path in directory.glob(pattern) if path.is_file())


def _copy(source: Path, target: Path) -> str:
    target.parent.mkdir(parents=True, exist_ok=True)
    return shutil.copy2(source, str(target))
