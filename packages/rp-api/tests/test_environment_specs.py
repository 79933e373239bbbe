"""Specifications of named environments: what is refused, the normal form, and what tells two environments apart."""

from __future__ import annotations

from typing import Any

import pytest

from rp_api.description.environment import files, identity, is_path, is_pyproject, normal_form, words
from rp_api.description.pilot import PilotDescription
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError

EMPTY = {'type': 'venv', 'version': '', 'path': '', 'setup': [], 'pre_exec': [], 'keep': False, 'pack': False,
         'container': {}}


@pytest.mark.parametrize(('spec', 'found'), [
    ({}, {}),
    ({'type': None, 'setup': None}, {}),
    ({'type': 'Conda', 'version': '3.12'}, {'type': 'conda', 'version': '3.12'}),
    ({'setup': ' numpy '}, {'setup': ['numpy']}),
    ({'setup': ('numpy', '-r  x.txt'), 'pre_exec': 'module load x'},
     {'setup': ['numpy', '-r  x.txt'], 'pre_exec': ['module load x']}),
    ({'keep': '/project/environments', 'pack': 1}, {'keep': '/project/environments', 'pack': True}),
    ({'type': 'container', 'container': 'image.sif'}, {'type': 'container', 'container': {'image': 'image.sif'}}),
    ({'type': 'shell', 'setup': []}, {'type': 'shell'})])
def test_the_normal_form_has_all_attributes(spec: dict[str, Any], found: dict[str, Any]) -> None:
    assert normal_form('e', spec) == EMPTY | found


@pytest.mark.parametrize(('name', 'spec', 'words'), [
    ('', {}, 'not empty'), ('a/b', {}, 'a/b'), ('a b', {}, 'a b'), (3, {}, 'a string'),
    ('rp', {}, "'rp'.*always exists"), ('e', 'venv', "'e'.*dict.*'venv'"),
    ('e', {'typ': 'venv'}, "'typ'.*'type'"), ('e', {'type': 'nix'}, "'type'.*'venv'.*'container'.*not 'nix'"),
    ('e', {'version': 3.10}, r"'version'.*'3.12', not 3.1"), ('e', {'version': '3.12.1'}, '3.12.1'),
    ('e', {'path': '~/ve'}, 'without ~'), ('e', {'path': '$HOME/ve'}, 'without ~ and variables'),
    ('e', {'setup': ['a\nb']}, "'setup'"), ('e', {'setup': ['']}, "'setup'"), ('e', {'setup': ["-r 'x"]}, 'quotation'),
    ('e', {'pre_exec': ['a\0']}, 'NUL'), ('e', {'keep': 'here'}, "'keep'.*absolute path"),
    ('e.sh', {}, r"'e\.sh': its files"), ('e', {'keep': True, 'setup': ['-e .']}, 'editable.*sandbox'),
    ('e', {'keep': True, 'path': '/x'}, "'keep' and 'path'"), ('e', {'pack': 'perhaps'}, "'pack'"),
    ('e', {'type': 'shell', 'setup': ['numpy']}, "'setup'.*'shell' have none"),
    ('e', {'type': 'shell', 'container': 'x'}, "set the type 'container'"),
    ('e', {'type': 'venv', 'container': 'x'}, "set the type 'container'"),
    ('e', {'type': 'container'}, "'container'.*needs it"), ('e', {'type': 'container', 'container': 3}, 'image')])
def test_an_invalid_specification_is_refused(name: Any, spec: Any, words: str) -> None:
    with pytest.raises(DescriptionError, match=words):
        normal_form(name, spec)


def test_equal_specifications_have_one_identity() -> None:
    spec = normal_form('a', {'setup': ['numpy'], 'version': '3.12'})
    other = normal_form('b', {'version': '3.12', 'type': 'venv', 'setup': 'numpy', 'keep': True, 'pack': True})
    assert identity(spec, {}) == identity(other, {})
    assert len(identity(spec, {})) == 64


@pytest.mark.parametrize('other', [
    {}, {'setup': ['numpy', 'scipy']}, {'setup': ['numpy'], 'version': '3.12'}, {'setup': ['numpy'], 'type': 'uv'},
    {'setup': ['numpy'], 'pre_exec': ['true']}, {'setup': ['numpy'], 'path': '/x'}])
def test_other_specifications_have_another_identity(other: dict[str, Any]) -> None:
    assert identity(normal_form('e', other), {}) != identity(normal_form('e', {'setup': ['numpy']}), {})


def test_the_identity_covers_the_content_of_named_files() -> None:
    spec = normal_form('e', {'setup': ['-r requirements.txt']})
    assert identity(spec, {'requirements.txt': 'a'}) != identity(spec, {'requirements.txt': 'b'})


@pytest.mark.parametrize(('entry', 'given', 'path'), [
    ('numpy>=1.26, <3', ['numpy>=1.26, <3'], None), ("-r 'my file.txt'", ['-r', 'my file.txt'], 'my file.txt'),
    ('--constraint c.txt', ['--constraint', 'c.txt'], 'c.txt'), ('-r https://x/r.txt', ['-r', 'https://x/r.txt'], None),
    ('./project', ['./project'], './project'), ('.', ['.'], '.'), ('dist/x-1.whl', ['dist/x-1.whl'], 'dist/x-1.whl'),
    ('pyproject.toml', ['pyproject.toml'], 'pyproject.toml'),
    ('/p/pyproject.toml', ['/p/pyproject.toml'], '/p/pyproject.toml'),
    ('x @ https://x/y.whl', ['x @ https://x/y.whl'], None),
    ('--index-url https://x', ['--index-url', 'https://x'], None)])
def test_an_entry_of_setup_may_name_a_file(entry: str, given: list[str], path: str | None) -> None:
    assert words(entry) == given
    assert list(files(normal_form('e', {'setup': [entry]}))) == ([path] if path else [])
    assert is_path(entry) == (path == entry)


def test_a_pyproject_is_told_from_other_names() -> None:
    assert is_pyproject('pyproject.toml')
    assert is_pyproject('a/pyproject.toml')
    assert not is_pyproject('my-pyproject.toml')
    assert not is_pyproject('-r pyproject.toml')


def test_descriptions_refuse_what_no_pilot_can_prepare() -> None:
    with pytest.raises(DescriptionError, match="'nix'"):
        PilotDescription({'resource': 'local.localhost', 'nodes': 1, 'prepare_env': {'e': {'type': 'nix'}}}).verify()
    with pytest.raises(DescriptionError, match='named_env'):
        TaskDescription({'executable': 'x', 'named_env': 'a/b'}).check()
