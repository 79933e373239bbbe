"""The pages about the scheduler and its policies: the files that they name are there."""

from __future__ import annotations

import pytest
from pages import dead_links, missing_sources

PAGES = ['understand/scheduler.md', 'extend/scheduling-policy.md']


@pytest.mark.parametrize('page', PAGES)
def test_links_and_names_of_files_lead_somewhere(page: str) -> None:
    assert dead_links(page) == []
    assert missing_sources(page, 'scheduler') == []
