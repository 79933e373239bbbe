"""The module `radical.pilot`: a table of names, looked up when they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

import radical.pilot as rp
from rp_api import constants, distributions, resources, states

TABLE: dict[str, tuple[str, str]] = vars(rp)['_TABLE']
STUB = Path(rp.__file__).with_suffix('.pyi')
SUBMODULES = sorted(vars(rp)['_modules'].children(''))


def python(code: str, **environ: str) -> str:
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True,
                          env={'PYTHONPATH': ':'.join(sys.path), **environ})
    return done.stdout.strip()


def test_importing_the_face_imports_nothing_else() -> None:
    loaded = 'print(*sorted(m for m in sys.modules if m.startswith(("rp_", "radical", "zmq", "msgpack", "asyncio"))))'
    assert python(f'import sys, radical.pilot; {loaded}') == 'radical radical.pilot radical.pilot._modules rp_api'


@pytest.mark.parametrize('name', sorted(TABLE))
def test_each_name_is_what_its_module_holds(name: str) -> None:
    module = import_module(TABLE[name][1])
    assert getattr(rp, name) is getattr(module, name)
    assert name in vars(rp)


@pytest.mark.parametrize('name', SUBMODULES)
def test_modules_are_reached_as_attributes(name: str) -> None:
    assert python(f'import radical.pilot as rp; print(rp.{name}.__name__)') == f'radical.pilot.{name}'


def test_all_constants_are_on_the_face() -> None:
    values = {name: value for name, value in vars(constants).items() if not name.startswith('_')}
    assert {name for name in values if name != 'annotations'} <= set(TABLE)


def test_all_states_are_on_the_face() -> None:
    assert set(states.PILOT.names) | set(states.TASK.names) <= set(TABLE)
    assert rp.FINAL == [rp.DONE, rp.FAILED, rp.CANCELED]


def test_all_resources_are_on_the_face() -> None:
    assert {name for name in resources.__all__ if not issubclass(getattr(resources, name), Exception)
            } <= set(TABLE)


def test_names_of_old_versions_exist_on_request() -> None:
    old = ' '.join(states.OLD_DEFINES)
    code = f'import radical.pilot as rp; print(*[n for n in "{old}".split() if hasattr(rp, n) or n in dir(rp)])'
    assert python(code) == ''
    assert python(code, RP_ENABLE_OLD_DEFINES='1') == old


def test_version_is_a_version() -> None:
    assert rp.version == rp.__version__ == rp.version_short == rp.version_detail
    assert [part.isdigit() for part in rp.version.split('.')] == [True] * 3


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'radical\.pilot' has no attribute 'Sesion': did you mean 'Session'"):
        _ = getattr(rp, 'Sesion')  # noqa: B009 (type checkers know that it is wrong)
    with pytest.raises(AttributeError, match="did you mean 'TaskDescription'"):
        _ = getattr(rp, 'TaskDescripton')  # noqa: B009
    with pytest.raises(AttributeError, match=r"has no attribute 'Nonsense'$"):
        _ = getattr(rp, 'Nonsense')  # noqa: B009


def test_name_of_a_missing_distribution_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(rp), 'Session', raising=False)
    monkeypatch.setitem(TABLE, 'Session', ('rp-client', 'rp_client_is_not_here.session'))
    monkeypatch.setattr(distributions, 'missing', lambda dist: f'{dist} is not installed')
    assert not hasattr(rp, 'Session')
    with pytest.raises(AttributeError, match=r'radical\.pilot\.Session: rp-client is not installed'):
        _ = rp.Session


def test_broken_installation_is_not_taken_for_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(rp), 'Session', raising=False)
    monkeypatch.setitem(TABLE, 'Session', ('rp-api', 'module_that_is_not_here'))
    with pytest.raises(ModuleNotFoundError, match='module_that_is_not_here'):
        _ = rp.Session


def test_star_import_takes_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, 'missing', lambda dist: dist if dist == 'rp-client' else None)
    names: dict[str, object] = {}
    exec('from radical.pilot import *', names)
    assert {'TaskDescription', 'DONE', 'COPY', 'utils', 'version'} <= set(names)
    assert 'Session' not in names
    assert 'Session' not in dir(rp)


def test_names_can_be_patched() -> None:
    with mock.patch('radical.pilot.TaskDescription', SimpleNamespace) as patched:
        assert vars(rp)['TaskDescription'] is patched
    assert rp.TaskDescription is import_module('rp_api.description.task').TaskDescription


def test_type_checkers_see_the_same_names() -> None:
    named: set[str | None] = set()
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            stars = node.names[0].name == '*'
            named |= set(vars(import_module(str(node.module)))) if stars else {alias.asname for alias in node.names}
        elif isinstance(node, ast.AnnAssign):
            named.add(ast.unparse(node.target))
    named = {name for name in named if name and not name.startswith('_') and name != 'annotations'}
    assert named == {name for name in dir(rp) if not name.startswith('_')}
