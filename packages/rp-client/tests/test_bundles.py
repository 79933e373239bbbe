"""`rp bundle`: with real pip, from wheels in a directory."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from rp_api.errors import PilotError
from rp_client import __version__
from rp_client.bootstrap.prepare import bundle_directory, find_bundle
from rp_client.cli.bundle import bundle


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where pip finds anything."""
    directory = tmp_path / 'wheels'
    directory.mkdir()
    for name, needs in (('rp_agent', 'Requires-Dist: other\n'), ('rp_raptor', ''), ('other', '')):
        info = f'{name}-{__version__}.dist-info'
        with zipfile.ZipFile(directory / f'{name}-{__version__}-py3-none-any.whl', 'w') as archive:
            archive.writestr(f'{info}/METADATA',
                             f'Metadata-Version: 2.1\nName: {name}\nVersion: {__version__}\n{needs}')
            archive.writestr(f'{info}/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
            archive.writestr(f'{info}/RECORD', '')
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.setenv('PIP_FIND_LINKS', str(directory))
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(tmp_path))
    return directory


def names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return [name.partition('-')[0] for name in archive.getnames()]


def test_bundle_for_all_platforms(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Agent and RAPTOR with what they need, where pilots look for it."""
    assert bundle([]) == 0
    path = tmp_path / '.radical' / 'pilot' / 'bundles' / 'default.tar'
    assert names(path) == ['other', 'rp_agent', 'rp_raptor']
    assert find_bundle(bundle_directory(), 'any.machine') == path
    assert f'{path}: 3 wheels' in capsys.readouterr().out
    assert [each.name for each in path.parent.iterdir()] == ['default.tar']


def test_bundle_for_one_platform_and_another_python(index: Path, tmp_path: Path) -> None:
    wheel = index / f'rp_agent-{__version__}-py3-none-any.whl'
    assert bundle(['--platform', 'my.machine', '--python', '3.12', str(wheel)]) == 0
    assert names(find_bundle(bundle_directory(), 'my.machine')) == ['other', 'rp_agent']


def test_bundle_elsewhere(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bundle(['--json', '--output', str(tmp_path / 'mine.tar'), 'rp-agent']) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told['path'], len(told['wheels'])) == (str(tmp_path / 'mine.tar'), 2)
    assert told['size'] == (tmp_path / 'mine.tar').stat().st_size
    assert names(tmp_path / 'mine.tar') == ['other', 'rp_agent']


def test_bundle_without_agent(index: Path, tmp_path: Path) -> None:
    with pytest.raises(PilotError, match='other does not require rp-agent'):
        bundle(['other'])
    assert not (tmp_path / '.radical').exists()


def test_bundle_of_what_does_not_exist(index: Path) -> None:
    with pytest.raises(PilotError, match=r'(?s)as pip failed:.*No matching distribution found for rp-agent==9'):
        bundle(['rp-agent==9'])


def test_python_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bundle(['--python', '3'])
    assert "'3' is not of the form 3.<minor>" in capsys.readouterr().err
