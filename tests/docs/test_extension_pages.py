"""The pages about extension points: the distribution on each of them is installed and used, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import DOCS, dead_links, install, run

pytestmark = pytest.mark.timeout(200)   # pip installs

PACKAGES = {'batch-system': 'mysys', 'cli-command': 'nodes', 'executor': 'dry_run', 'launch-method': 'herd_method',
            'resource-manager': 'mysys', 'scheduling-policy': 'spread', 'staging-protocol': 'unzip',
            'task-scheduler': 'in_order'}
"""The distribution on each page."""


@pytest.mark.parametrize('page', PACKAGES)
def test_the_extension_works(page: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(f'extend/{page}.md', PACKAGES[page], base, monkeypatch)
    (printed,) = re.findall(r'^It prints `(.*)`\.$', (DOCS / 'extend' / f'{page}.md').read_text(), re.MULTILINE)
    assert run('use_it.py', base=base) == f'{printed}\n'


@pytest.mark.parametrize('page', PACKAGES)
def test_the_page_is_short_and_its_links_lead_somewhere(page: str) -> None:
    assert len((DOCS / 'extend' / f'{page}.md').read_text().split()) <= 350
    assert dead_links(f'extend/{page}.md') == []
