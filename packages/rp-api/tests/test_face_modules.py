"""The modules below `radical.pilot`, and what is said where a distribution is missing."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

import radical.pilot as rp
from radical.pilot import _modules
from rp_api import distributions

TABLE: dict[str, dict[str, str]] = vars(_modules)['_TABLE']
FACE = Path(rp.__file__).parent
UPSTREAM = [
    'constants', 'pilot', 'pilot_description', 'pilot_manager', 'pytask', 'raptor', 'raptor.master', 'raptor.worker',
    'raptor.worker_default', 'raptor.worker_mpi', 'raptor_tasks', 'resource_config', 'session', 'staging_directives',
    'states', 'task', 'task_description', 'task_manager', 'utils', 'utils.misc', 'utils.prof_utils', 'utils.serializer',
    'utils.session']
"""The modules of RADICAL-Pilot 1.103 that hold names of its interface."""


OURS = ['aio']
"""Modules that RADICAL-Pilot 1.103 does not have."""


def python(code: str) -> str:
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True,
                          env={'PYTHONPATH': ':'.join(sys.path)})
    return done.stdout.strip()


@pytest.fixture
def client_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """rp-client looks as if it was not installed, and nothing of it was used before."""
    real = distributions.missing
    monkeypatch.setattr(distributions, 'missing', lambda dist: 'pip install it' if dist == 'rp-client' else real(dist))
    monkeypatch.delitem(vars(rp), 'Session', raising=False)
    monkeypatch.setitem(vars(rp)['_TABLE'], 'Session', ('rp-client', 'rp_client_is_not_here'))
    for name in ('session', 'raptor_tasks'):
        monkeypatch.delitem(vars(rp), name, raising=False)
        monkeypatch.delitem(sys.modules, f'radical.pilot.{name}', raising=False)


def test_the_modules_are_those_of_the_interface() -> None:
    assert sorted(TABLE) == sorted(UPSTREAM + OURS)


@pytest.mark.parametrize('name', UPSTREAM + OURS)
def test_each_name_of_a_module_exists(name: str) -> None:
    module = importlib.import_module(f'radical.pilot.{name}')
    assert sys.modules[f'radical.pilot.{name}'] is module
    assert module.__all__ == dir(module)
    listed = [entry.partition('=')[0] for names in TABLE[name].values() for entry in names.split() if entry != '*']
    assert set(listed) <= set(dir(module))
    for each in dir(module):
        assert getattr(module, each) is not None or each == 'DOWN'


@pytest.mark.parametrize('name', UPSTREAM + OURS)
def test_type_checkers_see_the_names_of_a_module(name: str) -> None:
    stub = FACE / name.replace('.', '/')
    stub = stub / '__init__.pyi' if stub.is_dir() else stub.with_suffix('.pyi')
    named: set[str | None] = set()
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ImportFrom):  # only `X as X` is exported
            stars = node.names[0].name == '*'
            named |= set(dir(importlib.import_module(str(node.module)))) if stars else {
                alias.asname for alias in node.names if alias.asname == alias.name}
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == '__all__':
            named |= set(ast.literal_eval(node.value))
    assert {each for each in named if each and not each.startswith('_')} == set(
        importlib.import_module(f'radical.pilot.{name}').__all__)


def test_a_class_is_the_same_by_all_paths() -> None:
    code = """
import radical.pilot.task_manager
import radical.pilot.raptor.worker_mpi as mpi
from radical.pilot.task_manager import TaskManager
from radical.pilot.raptor_tasks import Raptor
from radical.pilot import raptor, resource_config as rc
import radical.pilot as rp
assert radical.pilot.task_manager.TaskManager is TaskManager is rp.TaskManager
assert mpi.MPIWorker is raptor.MPIWorker is rp.raptor.worker_mpi.MPIWorker
assert Raptor is rp.RaptorMaster and rc.Slot is rp.Slot
print(TaskManager.__module__)
"""
    assert python(code) == 'rp_client.handles.task_manager'


def test_instances_are_pickled_by_where_their_class_is_defined() -> None:
    resources = importlib.import_module('radical.pilot.resource_config')
    data = pickle.dumps(resources.RankRequirements(n_cores=2))
    assert b'radical' not in data
    assert pickle.loads(data) == rp.RankRequirements(n_cores=2)


def test_importing_a_module_loads_only_what_is_used() -> None:
    loaded = 'print(*sorted(m for m in sys.modules if m.startswith(("rp_client", "rp_raptor", "rp_profiling"))))'
    assert python(f'import sys, radical.pilot.task_manager, radical.pilot.raptor.worker, radical.pilot.utils; {loaded}'
                  ) == ''


def test_names_can_be_patched() -> None:
    with mock.patch('radical.pilot.task_manager.TaskManager', SimpleNamespace) as patched:
        assert importlib.import_module('radical.pilot.task_manager').TaskManager is patched
    assert importlib.import_module('radical.pilot.task_manager').TaskManager is rp.TaskManager


def test_unknown_names_and_modules_are_the_usual_errors() -> None:
    with pytest.raises(AttributeError, match=r"module 'radical\.pilot\.task' has no attribute 'Unit'"):
        _ = importlib.import_module('radical.pilot.task').Unit
    with pytest.raises(ImportError, match=r"cannot import name 'Unit' from 'radical\.pilot\.utils'"):
        exec('from radical.pilot.utils import Unit')
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'radical\.pilot\.unit'"):
        importlib.import_module('radical.pilot.unit')
    assert importlib.util.find_spec('radical.pilot.unit') is None
    assert importlib.util.find_spec('radical.pilot.session') is not None


@pytest.mark.usefixtures('client_is_missing')
@pytest.mark.parametrize('code', [
    'import radical.pilot.session', 'from radical.pilot.session import Session', 'from radical.pilot import Session',
    'from radical.pilot import session', 'from radical.pilot.raptor_tasks import Raptor'])
def test_import_of_what_is_not_installed_says_what_to_install(code: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r'radical\.pilot\.\w+: pip install it') as caught:
        exec(code)
    assert caught.value.name == 'rp-client'


@pytest.mark.usefixtures('client_is_missing')
def test_attribute_that_is_not_installed_says_what_to_install() -> None:
    assert not hasattr(rp, 'session')
    assert {'session', 'raptor_tasks', 'Session'} & set(dir(rp)) == set()
    with pytest.raises(AttributeError, match=r'radical\.pilot\.session: pip install it'):
        _ = rp.session
