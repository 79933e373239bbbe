"""The page about launch methods: it describes all of them, and the files that it names are there."""

from __future__ import annotations

import re

from pages import DOCS, dead_links, missing_sources

from rp_api.platforms.systems import LAUNCH_METHODS

PAGE = 'reference/launch-methods.md'


def test_the_table_has_all_methods() -> None:
    rows = re.findall(r'^\| ([A-Z_, ]+) \| .*(?:composed|run)', (DOCS / PAGE).read_text(), re.MULTILINE)
    assert sorted(name for row in rows for name in row.split(', ')) == sorted(LAUNCH_METHODS)


def test_links_and_names_of_files_lead_somewhere() -> None:
    assert dead_links(PAGE) == []
    assert missing_sources(PAGE, 'launch_method') == []
