"""The walk-through that adds a launch method: its files, just as they stand in the page, are installed and used."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pages import DOCS, dead_links, install, missing_sources, run

from rp_api.platforms.systems import LAUNCH_METHODS

pytestmark = pytest.mark.timeout(200)   # pip installs

PAGES = ['reference/launch-methods.md', 'extend/launch-method.md']


@pytest.fixture
def walk_through(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files of the page, their package installed below it, and the launcher on PATH."""
    install('extend/launch-method.md', 'herd_method', base, monkeypatch)
    (base / 'bin/herd').chmod(0o755)
    monkeypatch.setenv('PATH', f'{base}/bin:{os.environ["PATH"]}')
    return base


def test_the_method_is_found_and_composes_commands(walk_through: Path) -> None:
    assert '2 passed' in run('-m', 'pytest', '-q', '-p', 'no:cacheprovider', 'herd_method/test_herd.py',
                             base=walk_through)


def test_a_session_uses_the_method(walk_through: Path) -> None:
    assert run('use_it.py', base=walk_through) == "DONE ['', 'rank 0', 'rank 1', 'rank 2'] HERD\n"


def test_the_table_has_all_methods() -> None:
    text = (DOCS / 'reference/launch-methods.md').read_text()
    rows = re.findall(r'^\| ([A-Z_, ]+) \| .*(?:composed|run)', text, re.MULTILINE)
    assert sorted(name for row in rows for name in row.split(', ')) == sorted(LAUNCH_METHODS)


@pytest.mark.parametrize('page', PAGES)
def test_links_and_names_of_files_lead_somewhere(page: str) -> None:
    assert dead_links(page) == []
    assert missing_sources(page, 'launch_method', besides=('use_it.py',)) == []
