"""What is installed: which part is missing, and what must not be there."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from rp_api import distributions
from rp_api.errors import PilotError

RECORD = 'dist-info', 'RECORD'


def distribution(site: Path, name: str, files: str, kind: tuple[str, str] = RECORD) -> list[str]:
    """A search path on which the metadata of a distribution lies that installed `files`."""
    metadata = site / f'{name}.{kind[0]}'
    metadata.mkdir(parents=True)
    (metadata / kind[1]).write_text(files)
    return [str(site / 'not there'), str(site)]


def test_installed_part_is_not_missing() -> None:
    assert distributions.missing('rp-api') is None
    distributions.require('rp-api')


def test_missing_part_comes_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    sentence = 'rp-raptor is not installed, and it is needed for RAPTOR masters and workers: pip install rp-raptor'
    assert distributions.missing('rp-raptor') == sentence
    with pytest.raises(PilotError, match='pip install rp-raptor'):
        distributions.require('rp-raptor')


def test_directory_without_modules_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'rp_raptor' / '__pycache__').mkdir(parents=True)
    monkeypatch.setattr(sys, 'path', [str(tmp_path)])
    monkeypatch.delitem(sys.modules, 'rp_raptor', raising=False)
    assert distributions.missing('rp-raptor') is not None


def test_unknown_part_is_an_error() -> None:
    with pytest.raises(KeyError, match='rp-tea'):
        distributions.missing('rp-tea')


@pytest.mark.parametrize(('name', 'kind'), [
    ('radical.pilot-1.103.2', RECORD),
    ('radical_pilot-1.103.2', RECORD),
    ('Radical.Pilot-1.103.2-py3.10', ('egg-info', 'installed-files.txt')),
    ('radical.pilot', ('egg-info', 'SOURCES.txt')),
])
def test_other_radical_pilot_is_refused(tmp_path: Path, name: str, kind: tuple[str, str]) -> None:
    path = distribution(tmp_path, name, 'radical/pilot/session.py,,\nradical/pilot/__init__.py,,\n', kind)
    with pytest.raises(PilotError) as caught:
        distributions.check_upstream(path)
    version = '1.103.2' if '-' in name else '(version unknown)'
    assert str(caught.value).startswith(f'radical.pilot {version} is installed in {tmp_path}, and rp-api provides')
    assert 'pip uninstall radical.pilot rp-api' in str(caught.value)


def test_editable_radical_pilot_is_refused(tmp_path: Path) -> None:
    path = distribution(tmp_path, 'radical_pilot-1.104.0', '__editable__.radical_pilot-1.104.0.pth,,\n')
    with pytest.raises(PilotError, match=r'radical\.pilot 1\.104\.0'):
        distributions.check_upstream(path)


@pytest.mark.parametrize(('name', 'files'), [
    ('radical.pilot-1.103.2+local', 'radical.pilot-1.103.2+local.dist-info/METADATA,,\n'),
    ('radical.utils-1.103.1', 'radical/utils/__init__.py,,\n'),
    ('radical_pilot_extras-1.0', 'radical/pilot/extras.py,,\n'),
    ('rp_api-2.0.0', 'radical/pilot/__init__.py,,\n'),
])
def test_other_distributions_are_accepted(tmp_path: Path, name: str, files: str) -> None:
    distributions.check_upstream(distribution(tmp_path, name, files))


def test_without_a_list_of_files_there_is_nothing_to_refuse(tmp_path: Path) -> None:
    (tmp_path / 'radical.pilot-1.0.dist-info').mkdir()
    distributions.check_upstream([str(tmp_path)])


def test_this_installation_is_accepted() -> None:
    distributions.check_upstream()
