"""The event catalogue and the source agree: what the one lists the other records, and nothing else is recorded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from envs import NEEDS, ROOT

from rp_profiling.catalogue import EVENTS, Event

READERS = {f'rp_profiling/{name}' for name in ('analyse', 'catalogue', 'check', 'draw', 'read')}
"""Packages that name events without recording them."""

SIMULATIONS = {'rp_agent/simulation', 'rp_client/simulation'}
"""Packages that write the traces of sessions that did not take place."""

# functions that get names of events: methods of tracers, and functions that pass the names on to these; and the
# argument that has the names, or None if any may
CALLS: dict[str, int | None] = {
    'record': 0, 'record_many': 1, 'record_bulk': 0, 'record_each': 0, '_own_row': 0, '_event': 1, 'trace': 0,
    '_trace': 0, '_trace_each': 0, '_record': None}
IN_SCRIPTS: dict[str, int | None] = {'note': 0, 'lines': 0}
"""Such functions of the module that writes the scripts of tasks."""

SCRIPTS = 'rp_agent/executor/launching/script.py'
NO_EVENTS = {'rp_api/coordination/spool_file.py'}
"""Modules whose `_record` is about something else."""

VARIABLE = 'staging_(?:in|out)'
"""The meaning of an expression in the name of an event."""

IN_SHELL = re.compile(r'\brp_(?:event|row) ([a-z]\w+)')
IN_C = re.compile(r'\btime, "(\w+)", uid')
OF_APPLICATIONS = 'app_'


def _package(name: str) -> str:
    return '/'.join(name.split('/')[:2])


def sources() -> Iterator[tuple[str, Path]]:
    """Path inside its distribution, and the file, of each source that may record events."""
    for dist in NEEDS:
        top = ROOT / 'packages' / dist / 'src'
        for path in sorted(top.rglob('*')):
            name = str(path.relative_to(top))
            if path.suffix in ('.py', '.sh', '.c') and _package(name) not in READERS and name not in NO_EVENTS:
                yield name, path


def in_python(text: str, calls: dict[str, int | None]) -> Iterator[str]:
    """Patterns of the event names in these calls."""
    if not re.search(rf'\b(?:{"|".join(calls)})\(', text):
        return
    tree = ast.parse(text)
    constants = {node.targets[0].id: node.value for node in tree.body
                 if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}

    def names(node: ast.expr) -> Iterator[str]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
            yield re.escape(node.value)
        elif isinstance(node, ast.JoinedStr):
            yield ''.join(re.escape(part.value) if isinstance(part, ast.Constant) and isinstance(part.value, str)
                          else VARIABLE for part in node.values)
        elif isinstance(node, ast.Tuple):
            for each in node.elts:
                yield from names(each)
        elif isinstance(node, ast.Starred):
            yield from names(node.value)
        elif isinstance(node, ast.IfExp):
            yield from names(node.body)
            yield from names(node.orelse)
        elif isinstance(node, ast.Name) and node.id in constants:
            yield from names(constants[node.id])
        elif isinstance(node, ast.Subscript):
            yield from names(node.value)

    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, 'id', '')
            if called in calls:
                place = calls[called]
                for argument in node.args if place is None else node.args[place:place + 1]:
                    yield from names(argument)


def in_file(name: str, path: Path) -> set[str]:
    text = path.read_text()
    if path.suffix == '.sh':
        return set(IN_SHELL.findall(text))
    if path.suffix == '.c':
        return set(IN_C.findall(text))
    return set(in_python(text, CALLS | IN_SCRIPTS if name == SCRIPTS else CALLS))


@cache
def recorded(simulations: bool) -> dict[str, str]:
    """Patterns of the names of recorded events, and a file that records each."""
    return {pattern: name for name, path in sources() for pattern in in_file(name, path)
            if simulations or _package(name) not in SIMULATIONS}


def is_recorded(event: Event) -> bool:
    return any(re.fullmatch(pattern, event.name) for pattern in recorded(False))


def test_each_event_is_recorded_or_says_why_it_is_not() -> None:
    of_the_system = [each for each in EVENTS if not each.name.startswith(OF_APPLICATIONS)]
    assert {each.name for each in of_the_system if not each.unrecorded and not is_recorded(each)} == set()
    assert {each.name for each in of_the_system if each.unrecorded and is_recorded(each)} == set()


def test_nothing_is_recorded_that_the_catalogue_lacks() -> None:
    names = {each.name for each in EVENTS}
    strangers = {pattern: file for pattern, file in recorded(True).items()
                 if not any(re.fullmatch(pattern, name) for name in names)}
    assert strangers == {}
