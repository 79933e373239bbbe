"""The pages about resource managers and platform definitions: what they name is there, and nothing is missing."""

from __future__ import annotations

import re

import pytest
from pages import DOCS, dead_links

from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.systems import RESOURCE_MANAGERS


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
