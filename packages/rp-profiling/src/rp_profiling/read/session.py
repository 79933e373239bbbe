"""Reads all profiles of a session into one trace.

Profiles are those of the application's side and of pilots: fetched ones are in the directory of the session; if the
sandbox of a pilot can be reached, they are read there. Profiles of all versions of RADICAL-Pilot can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rp_profiling.levels import DEFAULT, STATES
from rp_profiling.read import epochs
from rp_profiling.read.align import align
from rp_profiling.read.columns import Columns
from rp_profiling.read.files import COMPRESSED, profiles_below, text_of
from rp_profiling.read.trace import ProfileFile, Trace

_COMPRESSION = 16
"""Approximate ratio of the size of a compressed profile's text to the size of the file."""
_HEAD_BYTES = 16 * 1024


def read_trace(directory: str | Path, also: Iterable[str | Path] = ()) -> Trace:
    """Read the trace of a session.

    Args:
        directory: The directory of the session.
        also: Sandboxes of pilots that are not found automatically.

    Raises:
        NotADirectoryError: If one of them is not a directory.
        FileNotFoundError: If there is no profile.
    """
    roots = [Path(directory), *map(Path, also)]
    for root in roots:
        if not root.is_dir():
            raise NotADirectoryError(f'no profiles can be read from {root}: it is not a directory')
    files = _replaced(list(_files(roots[0], '')), roots[1:])
    if not files:
        raise FileNotFoundError(f'there are no profiles in {" or ".join(map(str, roots))}')
    trace = _read(files)
    reached = [path for path in _sandboxes(trace) if path.resolve() not in {root.resolve() for root in roots}]
    return _read(_replaced(files, reached)) if reached else trace


def _replaced(files: list[ProfileFile], sandboxes: Sequence[Path]) -> list[ProfileFile]:
    """Return the profiles, where those in sandboxes of pilots (and their partitions) replace fetched ones."""
    found = [file for sandbox in sandboxes for file in _files(sandbox, sandbox.name)]
    places = {file.place for file in found}
    return [file for file in files if file.place not in places] + found


def _files(root: Path, place: str) -> Iterator[ProfileFile]:
    """Yield the profiles below a directory; those below the profiles of an agent belong to the same pilot."""
    places: dict[Path, str] = {root: place}
    for path in sorted(profiles_below(root), key=lambda path: (len(path.parts), path)):
        if path.name.startswith('agent_') and path.parent not in places:
            places[path.parent] = path.parent.name
        parent: Path = next(parent for parent in path.parents if parent in places)
        yield ProfileFile(path, places[parent])


def _sandboxes(trace: Trace) -> list[Path]:
    """Return the sandboxes of pilots that the launcher has recorded and that can be reached from here."""
    rows = trace.rows_of('submission_start')
    named = dict.fromkeys(trace.columns.messages[trace.columns.message[row]] for row in rows)
    return [Path(name) for name in named if name.startswith('/') and any(Path(name).glob('agent_*.prof*'))]


def _read(files: Sequence[ProfileFile]) -> Trace:
    columns = Columns(sum(_size(file.path) for file in files))
    for file in files:
        columns.begin()
        _add(columns, file.path)
    trace = Trace(columns, files)
    if columns.torn:
        trace.remarks.append(f'{columns.torn} incomplete rows were skipped')
    if trace.reduced.any():
        trace.remarks.append(f'events were left out (detail {STATES!r}): the times of single steps, such as staging '
                             f'directives and launchers, need RADICAL_PILOT_PROFILE={DEFAULT}')
    align(trace)
    return trace


def _size(path: Path) -> int:
    """Return the approximate length of a profile's text."""
    return path.stat().st_size * (_COMPRESSION if path.name.endswith(COMPRESSED) else 1)


def _add(columns: Columns, path: Path) -> None:
    line = None
    rest = b''
    first = True
    for block in text_of(path):
        if first:
            line = epochs.translation(block[:_HEAD_BYTES])
            first = False
        end = block.rfind(b'\n') + 1
        if end == 0:
            rest += block
            continue
        text = rest + block[:end]
        rest = block[end:]
        columns.add(text if line is None else epochs.translate(text, line))
    if rest:
        columns.add(rest if line is None else epochs.translate(rest, line))
