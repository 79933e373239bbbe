"""The walk-through that adds a scheduling policy: its files, just as they stand in the page, are installed and used."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import dead_links, install, missing_sources, run

pytestmark = pytest.mark.timeout(200)   # pip installs

PAGES = ['understand/scheduler.md', 'extend/scheduling-policy.md']


@pytest.fixture
def walk_through(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files of the page, their package installed below it."""
    install('extend/scheduling-policy.md', 'spread', base, monkeypatch)
    return base


def test_the_policy_places_tasks(walk_through: Path) -> None:
    assert '1 passed' in run('-m', 'pytest', '-q', '-p', 'no:cacheprovider', 'spread/test_spread.py', base=walk_through)


def test_a_session_uses_the_policy(walk_through: Path) -> None:
    assert run('use_it.py', base=walk_through) == "[0, 1, 2] {'DONE'}\n"


@pytest.mark.parametrize('page', PAGES)
def test_links_and_names_of_files_lead_somewhere(page: str) -> None:
    assert dead_links(page) == []
    assert missing_sources(page, 'scheduler') == []
