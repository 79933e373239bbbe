"""The page about resource managers: the one that it adds is found and works, and what it names is there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import DOCS, FILE, dead_links

from rp_agent.resource_manager.base import Request
from rp_agent.resource_manager.system import System
from rp_agent.resource_manager.systems import find
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.systems import RESOURCE_MANAGERS


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's distribution, as if it were installed."""
    files = dict(FILE.findall((DOCS / 'reference/resource-managers.md').read_text()))
    (tmp_path / 'rp_mysys.py').write_text(files['rp_mysys.py'])
    metadata = tmp_path / 'rp_mysys-1.0.dist-info'
    metadata.mkdir()
    (metadata / 'METADATA').write_text('Metadata-Version: 2.1\nName: rp-mysys\nVersion: 1.0\n')
    group, line = re.findall(r'entry-points\."(.*)"]\n(.*)', files['pyproject.toml'])[0]
    (metadata / 'entry_points.txt').write_text(f'[{group}]\n{line.replace(chr(34), "")}\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop('rp_mysys', None)


@pytest.mark.usefixtures('distribution')
def test_the_one_that_the_page_adds() -> None:
    system = System({'MYSYS_JOB': '7', 'MYSYS_NODES': 'localhost:6 n2:4'})
    allocation = find.allocate(Request(1, 0, 0), {'resource_manager': 'MYSYS'}, system)
    assert (allocation.names, allocation.cores_per_node) == (('localhost',), 6)


def test_all_resource_managers_are_described() -> None:
    rows = set(re.findall(r'^\| ([A-Z]+) \|', (DOCS / 'reference/resource-managers.md').read_text(), re.MULTILINE))
    assert rows == set(RESOURCE_MANAGERS) - {'LOADL'}


def test_all_fields_are_described() -> None:
    text = (DOCS / 'reference/platform-definitions.md').read_text()
    named = set(re.findall(r'`(\w+)`', text))
    fields = set(ResourceConfig.FIELDS) - {'label', 'system_architecture', 'new_session_per_task'}
    assert fields - named == set()


@pytest.mark.parametrize('page', ['reference/resource-managers.md', 'reference/platform-definitions.md'])
def test_links_lead_somewhere(page: str) -> None:
    assert dead_links(page) == []
