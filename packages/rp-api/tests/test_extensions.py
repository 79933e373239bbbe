"""Extensions of other distributions: found by their group, or by the name that the group had before."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from rp_api import extensions
from rp_api.errors import PlatformError

GROUP = 'radical_pilot.launch_methods'
OLD = 'rp_agent.launch_methods'


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed distribution; the file is the one with its entry points."""
    metadata = tmp_path / 'herd-1.0.dist-info'
    metadata.mkdir()
    (metadata / 'METADATA').write_text('Metadata-Version: 2.1\nName: herd\nVersion: 1.0\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    return metadata / 'entry_points.txt'


def test_an_extension_is_found(distribution: Path) -> None:
    distribution.write_text(f'[{GROUP}]\nHERD = pathlib:Path\n')
    assert extensions.find(GROUP, 'HERD', {}, 'launch method') is Path
    assert 'HERD' in extensions.installed(GROUP)


def test_an_old_group_is_read_with_a_warning(distribution: Path) -> None:
    distribution.write_text(f'[{OLD}]\nHERD = pathlib:Path\n')
    with pytest.warns(DeprecationWarning, match=rf'HERD = pathlib:Path is in the group {OLD}, .* in {GROUP}'):
        assert extensions.find(GROUP, 'HERD', {}, 'launch method') is Path


def test_one_that_is_in_both_groups_is_taken_from_the_new_one(distribution: Path) -> None:
    distribution.write_text(f'[{OLD}]\nHERD = no_such_module:Herd\n[{GROUP}]\nHERD = pathlib:Path\n')
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert extensions.find(GROUP, 'HERD', {}, 'launch method') is Path


def test_our_own_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('importlib.metadata.entry_points', lambda: pytest.fail('it looked for entry points'))
    assert extensions.find(GROUP, 'OWN', {'OWN': 'pathlib:Path'}, 'launch method') is Path


def test_an_unknown_name(distribution: Path) -> None:
    distribution.write_text(f'[{GROUP}]\nHERD = pathlib:Path\n')
    with pytest.raises(PlatformError, match=r"^launch method 'HRED' is unknown, installed are HERD, OWN$"):
        extensions.find(GROUP, 'HRED', {'OWN': 'pathlib:Path'}, "launch method 'HRED'")
