"""The direction of dependencies: which module may import which, read from the source and seen when they run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from envs import NEEDS, ROOT

OURS = {name.replace('-', '_') for name in NEEDS} | {'radical'}
FOREIGN = 'radical.saga'
"""Lives in the same namespace and is not ours."""

PACKAGES = sorted(OURS - {'radical'})

# the rooms of rp_api, lowest first; a room may use those before it and none after it
ROOMS = (
    {'errors', 'constants', 'record', 'processes', 'signals', 'agent_process', 'host', 'disk', 'network', 'logger',
     'readable', 'private', 'limits', 'owner_process'},
    {'states', 'standing', 'resources', 'functions', 'parts', 'partitions', 'blobs', 'simulation', 'uid_set'},
    {'values'},
    {'staging'},
    {'description'},
    {'platforms'},
    {'mesh'},
    {'raptor_link'},
    {'raptor_defaults'},
    {'coordination'},
    {'component', 'traced'},
    {'analytics'},
)


def source(package: str) -> Path:
    return ROOT / 'packages' / package.replace('_', '-') / 'src' / package


def modules(package: str) -> list[Path]:
    return [path for pattern in ('*.py', '*.pyx', '*.pyi') for path in sorted(source(package).rglob(pattern))]


def imported(path: Path) -> Iterator[str]:
    """Full names of the modules that the module at `path` imports at any depth, in functions and under conditions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'{path}: relative import'
            yield from (f'{node.module}.{alias.name}' for alias in node.names)


def imported_by_cython(path: Path) -> Iterator[str]:
    """The same for a Cython source, where an import stands on a line of its own."""
    for line in path.read_text().splitlines():
        words = line.split()
        if words[:1] in (['import'], ['cimport'], ['from']) and len(words) > 1:
            yield words[1]


def ours(path: Path) -> set[str]:
    names = imported_by_cython(path) if path.suffix == '.pyx' else imported(path)
    return {name for name in names if name.partition('.')[0] in OURS and not name.startswith(FOREIGN)}


@pytest.mark.parametrize('package', PACKAGES)
def test_a_package_imports_only_what_it_depends_on(package: str) -> None:
    allowed = {package} | {name.replace('-', '_') for name in NEEDS[package.replace('_', '-')]}
    assert modules(package)
    wrong = {str(path.relative_to(ROOT)): name for path in modules(package) for name in ours(path)
             if name.partition('.')[0] not in allowed}
    assert wrong == {}


def test_radical_saga_is_imported_in_one_place() -> None:
    """In the process that is there for it, for the batch systems that only it reaches."""
    users = {path.name for package in PACKAGES for path in modules(package) if path.suffix == '.py'
             and any(name.startswith(FOREIGN) for name in imported(path))}
    assert users == {'service.py', 'pipe_shell.py'}


def test_the_face_imports_only_itself_and_rp_api() -> None:
    face = ROOT / 'packages/rp-api/src/radical/pilot'
    tops = {name.partition('.')[0] for path in face.rglob('*.py') for name in ours(path)}
    assert tops == {'radical', 'rp_api'}


def test_rooms_of_the_api_use_only_lower_ones() -> None:
    level = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
    wrong = []
    for path in modules('rp_api'):
        room = path.relative_to(source('rp_api')).parts[0].removesuffix('.py')
        used = {name.split('.')[1] for name in ours(path) if name.startswith('rp_api.')} & set(level)
        if room != '__init__':
            assert room in level, f'{room} has no place among the rooms'
            wrong += [f'{room} uses {other}' for other in used if other != room and level[other] > level[room]]
    assert wrong == []


@pytest.mark.parametrize(('module', 'foreign'), [
    ('rp_client.session', {'rp_agent', 'rp_raptor'}),
    ('rp_client.task_manager', {'rp_agent', 'rp_raptor'}),
    ('rp_client.launcher.batch.launcher', {'rp_agent', 'rp_raptor', 'radical'}),
    ('rp_client.simulation', {'rp_agent', 'rp_raptor', 'numpy'}),
    ('rp_agent.agent', {'rp_client', 'rp_raptor'}),
    ('rp_agent.simulation.pilot', {'rp_client', 'rp_raptor', 'numpy'}),
    ('rp_api.component', {'rp_client', 'rp_agent', 'rp_raptor'}),
    ('rp_profiling.write.tracer', {'rp_api', 'rp_client', 'rp_agent', 'rp_raptor', 'radical'}),
])
def test_running_side_loads_nothing_of_the_other(module: str, foreign: set[str]) -> None:
    code = f'import sys, {module}; print(*sorted(n for n in sys.modules if "." not in n))'
    out = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout
    assert module.partition('.')[0] in out.split()
    assert foreign & set(out.split()) == set()
