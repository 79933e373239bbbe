"""The output of tasks in the store: how a result is packed with its files, and how these get to their targets again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from rp_api.errors import PilotError
from rp_api.staging.directive import Directive
from rp_api.staging.files import copy, has_wildcard
from rp_api.staging.run import attempt
from rp_api.staging.trees import remove
from rp_api.values import with_files
from rp_api.wire import codec
from rp_client.cache.notes import PARTS, Identity
from rp_client.completion.result import OUTPUT_CHARS
from rp_client.core.task import TaskRecord
from rp_client.stager.output import open_output

if TYPE_CHECKING:
    from pathlib import Path

    from rp_client.cache.store import ResultStore

_STREAMS = ('stdout', 'stderr')

_RESULT_NAMES = ('exit_code', 'stdout', 'stderr', 'return_value', 'output_files')
"""The data of a task that is its result."""

_PROBE = 1 << 16
"""Bytes that are written to find out whether there is room for output."""


class OutputPacking:
    """Packs the result of a task, and copies the files that belong to it to the directory with its output."""

    def __init__(self, task: TaskRecord, identity: Identity, store: ResultStore, directory: Path | None) -> None:
        self._task = task
        self._identity = identity
        self._store = store
        self._directory = directory
        self._values = 0

    def packed(self) -> tuple[bytes, Path | None]:
        """Return the packed info, and the directory, if there is one."""
        known: Mapping[str, Any] = self._task.info or {}
        info = {name: known[name] for name in _RESULT_NAMES if name in known}
        if 'return_value' in info:
            info['return_value'] = with_files(info['return_value'], self._copy_value)
        outside = dict(elsewhere(self._task))
        info['whole'] = [stream for stream in _STREAMS
                         if (stream in outside or len(info.get(stream) or '') >= OUTPUT_CHARS)
                         and self._copy_stream(stream)]
        if missing := outside.keys() - {*info['whole']}:
            raise PilotError(f'its {min(missing)} cannot be read')
        return codec.pack({**info, PARTS: self._identity.parts}), self._directory

    def drop(self) -> None:
        """Remove the directory of a result that is not stored."""
        if self._directory is not None:
            remove_output(self._directory)

    def _place(self) -> Path:
        if self._directory is None:
            self._directory = self._store.new_directory()
        return self._directory

    def _copy_value(self, path: str) -> str:
        self._values += 1
        name = f'value.{self._values}'
        copy(path, str(self._place() / name))
        return name

    def _copy_stream(self, stream: str) -> bool:
        """Copy a standard stream of a local task, of which the info has only the end; return whether it is there."""
        path = self._task.outputs().get(stream)
        if path is None or self._task.pilot is None or not self._task.pilot.directories.here:
            return False
        try:
            source = open_output(self._task, path)
        except (OSError, PilotError, RuntimeError):   # it may be removed, or a call's, which has no file
            return False
        with source, (self._place() / stream).open('wb') as target:
            copyfileobj(source, target)
        return True


def elsewhere(task: TaskRecord) -> Iterator[tuple[str, str]]:
    """Yield the standard streams that a task writes to files outside of its sandbox, with the paths."""
    description = task.sparse()
    for stream in _STREAMS:
        path = description.get(stream, '')
        if os.path.isabs(path):
            yield stream, path


def directory_of(task: TaskRecord) -> str:
    """Return the directory with the sandbox of a task; empty if it is not on this host."""
    pilot = task.pilot
    return pilot.directories.pilot if pilot is not None and pilot.directories.here else ''


def write_error(directory: str) -> OSError | None:
    """Return the error of writing to a directory, or to the one above if it is gone; output may be lost by it, too."""
    if not directory:
        return None
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    try:
        with TemporaryFile(dir=directory) as file:
            file.write(bytes(_PROBE))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


def remove_output(directory: Path) -> None:
    """Remove a directory with output, as far as possible; `rp cache prune` removes the rest."""
    with suppress(OSError):
        remove(str(directory))


def put_in_place(directive: Directive, place: Path, target: str) -> None:
    """Bring the output of a directive to its target, as the directive would."""
    for path in sorted(place.iterdir()):
        attempt(directive, str(path), os.path.join(target, '') if has_wildcard(directive['source']) else target)
