"""The direction of dependencies: which module may import which, read from the source and seen when they run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from envs import NEEDS, ROOT

OURS = {name.replace('-', '_') for name in NEEDS} | {'radical'}
FOREIGN = 'radical.saga'
"""Lives in the same namespace and is not ours."""

PACKAGES = sorted(OURS - {'radical'})

# packages and modules at the top of each distribution, lowest first; one may import those before it, none after it
ORDER: dict[str, tuple[set[str], ...]] = {
    'rp_profiling': (
        {'levels'},
        {'catalogue'},
        {'write', 'tracer'},
        {'read', 'profile', 'trace'},
        {'analyse', 'calls', 'durations', 'utilisation'},
        {'check'},
        {'draw'},
        {'cli'},
    ),
    'rp_api': (
        {'errors', 'constants', 'task_modes', 'logger', 'record', 'component', 'uid_set',
         'balancing', 'backoff', 'units', 'task_info'},
        {'system', 'distributions', 'extensions', 'pickles', 'by_value'},
        {'states', 'resources', 'functions', 'blobs', 'simulation', 'wire'},
        {'values', 'staging', 'version_1', 'failures'},
        {'description'},
        {'platforms'},
        {'loop'},
        {'batch'},
        {'transport'},
        {'tree', 'raptor_link'},
        {'raptor_defaults', 'endpoint', 'app_comm', 'reasons'},
        {'coordination'},
        {'analytics'},
    ),
    'rp_client': (
        {'component', 'ids', 'settings', 'old_names', 'common_description', 'engine', 'bootstrap'},
        {'completion', 'launcher', 'traces'},
        {'core', 'inspect'},
        {'platform_check', 'report'},
        {'stager', 'scheduler'},
        {'cache'},
        {'flow', 'simulation', 'recorded'},
        {'service'},
        {'handles'},
        {'progress', 'successor'},
        {'executor'},
        {'cli'},
    ),
    'rp_agent': (
        {'lineage', 'logs', 'lookup', 'network', 'instance_nodes', 'synthetic'},
        {'resource_manager', 'node_copies'},
        {'bootstrap', 'launch_method', 'lifetime', 'sandbox', 'task'},
        {'scheduler', 'stager', 'reporting'},
        {'executor'},
        {'components', 'limits'},
        {'nodes'},
        {'app_comm'},
        {'partitions'},
        {'calls', 'dependencies', 'prerequisites', 'raptor'},
        {'environments', 'services'},
        {'pipeline'},
        {'endpoint', 'local_tasks'},
        {'features'},
        {'agent', 'simulation'},
        {'cli', '__main__'},
    ),
    'rp_raptor': (
        {'errors', 'loading', 'own_profile', 'unchanged'},
        {'wire'},
        {'objects'},
        {'carriers', 'definitions', 'functions', 'worker'},
        {'client', 'rank'},
        {'master'},
        {'cli'},
    ),
}

INTERFACE = {f'rp_client.{name}' for name in (
    'handles.session', 'handles.pilot_manager', 'handles.task_manager', 'handles.pilot', 'handles.task',
    'handles.partition', 'handles.base', 'handles.sweep', 'handles.raptor', 'completion.task_future')}
"""Modules of the classes that applications hold, which refer to each other in their types."""

MOST_MODULES = 20


def source(package: str) -> Path:
    return ROOT / 'packages' / package.replace('_', '-') / 'src' / package


def modules(package: str) -> list[Path]:
    return [path for pattern in ('*.py', '*.pyx', '*.pxd', '*.pyi') for path in sorted(source(package).rglob(pattern))]


def name_of(path: Path, package: str) -> str:
    """The full name of the module at `path`; that of a package for its `__init__`."""
    parts = path.relative_to(source(package).parent).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


def imported(path: Path, *, types: bool = True) -> Iterator[str]:
    """Full names of what the module at `path` imports at any depth, in functions, under conditions, and for types."""
    tree = ast.parse(path.read_text())
    skipped = set() if types else {node for block in ast.walk(tree) if isinstance(block, ast.If)
                                   and ast.unparse(block.test) == 'TYPE_CHECKING'
                                   for statement in block.body for node in ast.walk(statement)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'{path}: relative import'
            yield from (f'{node.module}.{alias.name}' for alias in node.names)


def imported_by_cython(path: Path) -> Iterator[str]:
    """The same for a Cython source, where an import begins on a line of its own."""
    for package, names in re.findall(r'(?m)^\s*from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|.*)$', path.read_text()):
        yield from (f'{package}.{name}' for name in re.findall(r'(\w+)(?:\s+as\s+\w+)?', names.partition('#')[0]))
    yield from re.findall(r'(?m)^\s*c?import\s+([\w.]+)', path.read_text())


def ours(path: Path, *, types: bool = True) -> set[str]:
    cython = path.suffix in ('.pyx', '.pxd')
    names = imported_by_cython(path) if cython else imported(path, types=types)
    return {name for name in names if name.partition('.')[0] in OURS and not name.startswith(FOREIGN)}


def loaded_by_name(path: Path) -> set[str]:
    """Names of modules in strings, where modules are loaded by name."""
    text = path.read_text()
    return set(re.findall(r"'(rp_\w+(?:\.\w+)+)(?::\w+)?'", text)) if 'import_module(' in text else set()


@cache
def arrows(package: str) -> set[tuple[str, str]]:
    """Which module of a distribution imports which other one, types of the interface aside."""
    known = {name_of(path, package) for path in modules(package)}
    found = set()
    for path in modules(package):
        name = name_of(path, package)
        without_types = ours(path, types=False)
        for other in ours(path) | loaded_by_name(path):
            used = other if other in known else other.rpartition('.')[0]
            of_interface = {name, used} <= INTERFACE and other not in without_types
            if used in known - {name} and not of_interface:
                found.add((name, used))
    return found


def siblings(one: str, other: str) -> tuple[str, str, str] | None:
    """The package in which both are, and which of its packages or modules each of them is, or is in."""
    first, second = one.split('.'), other.split('.')
    depth = next((depth for depth, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
    return ('.'.join(first[:depth]), first[depth], second[depth]) if depth else None


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
    assert users == {'adaptors.py', 'jobs.py', 'service.py'}


def test_the_face_imports_only_itself_and_rp_api() -> None:
    face = ROOT / 'packages/rp-api/src/radical/pilot'
    tops = {name.partition('.')[0] for path in face.rglob('*.py') for name in ours(path)}
    assert tops == {'radical', 'rp_api'}


@pytest.mark.parametrize('package', PACKAGES)
def test_packages_import_only_lower_ones(package: str) -> None:
    level = {name: number for number, names in enumerate(ORDER[package]) for name in names}
    there = {path.relative_to(source(package)).parts[0].partition('.')[0] for path in modules(package)} - {'__init__'}
    assert there == set(level), f'to be added to, or removed from, the order of {package}: {there ^ set(level)}'
    met = {(one, other): siblings(one, other) for one, other in arrows(package)}
    assert [f'{one} imports {other}' for (one, other), both in sorted(met.items())
            if both and both[0] == package and level[both[1]] < level[both[2]]] == []


@pytest.mark.parametrize('package', PACKAGES)
def test_no_two_packages_import_each_other(package: str) -> None:
    """Nor do they by way of others: in each package, what it consists of can be put in an order."""
    graphs: dict[str, dict[str, set[str]]] = {}
    for one, other in arrows(package):
        if both := siblings(one, other):
            graphs.setdefault(both[0], {}).setdefault(both[1], set()).add(both[2])
    circles = []
    for parent, graph in graphs.items():
        rooms = [name for name in graph if (source(package).parent / parent.replace('.', '/') / name).is_dir()]
        circles += [f'{parent}.{name}' for name in rooms if name in reached(graph, name)]
    assert circles == [], 'these packages are imported by what they import'


@pytest.mark.parametrize('package', PACKAGES)
def test_no_module_is_imported_by_what_it_imports(package: str) -> None:
    """At the top, in functions, or for types alike."""
    graph: dict[str, set[str]] = {}
    for one, other in arrows(package):
        graph.setdefault(one, set()).add(other)
    assert [name for name in graph if name in reached(graph, name)] == []


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """What can be reached from `start` by at least one arrow."""
    found: set[str] = set()
    new = set(graph.get(start, ()))
    while new:
        found |= new
        new = {other for name in new for other in graph.get(name, ())} - found
    return found


@pytest.mark.parametrize('package', PACKAGES)
def test_a_public_class_name_exists_once(package: str) -> None:
    places: dict[str, list[str]] = {}
    for path in modules(package):
        for node in ast.walk(ast.parse(path.read_text())) if path.suffix == '.py' else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
                places.setdefault(node.name, []).append(str(path))
    assert {name: found for name, found in places.items() if len(set(found)) > 1} == {}


@pytest.mark.parametrize('package', PACKAGES)
def test_packages_are_small_and_say_what_they_are_for(package: str) -> None:
    counts: dict[Path, set[str]] = {}
    for path in modules(package):
        counts.setdefault(path.parent, set()).add(path.stem)
    assert {str(place): len(names) for place, names in counts.items()
            if len(names - {'__init__', '__main__'}) > MOST_MODULES} == {}
    assert [str(place) for place in counts
            if not ast.get_docstring(ast.parse((place / '__init__.py').read_text()))] == []


@pytest.mark.parametrize(('module', 'foreign'), [
    ('rp_client.handles.session', {'rp_agent', 'rp_raptor'}),
    ('rp_client.handles.task_manager', {'rp_agent', 'rp_raptor'}),
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
