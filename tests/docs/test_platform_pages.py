"""The pages about batch systems: their definitions are ones that pilots can be submitted to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rp_api.description.pilot import PilotDescription
from rp_api.platforms.definition import ResourceConfig
from rp_client.launcher.launchers import launcher_class

PAGES = sorted((Path(__file__).parents[2] / 'docs/guides/platforms').glob('*.md'))
BLOCK = re.compile(r'^```json[^\n]*\n(.*?)^```', re.MULTILINE | re.DOTALL)
DEFINITIONS = [pytest.param(text, id=page.stem) for page in PAGES for text in BLOCK.findall(page.read_text())]


@pytest.mark.parametrize('text', DEFINITIONS)
def test_definition_of_a_page(text: str) -> None:
    for name, definition in json.loads(text).items():
        for schema in definition['schemas'].values():
            platform = ResourceConfig(definition | schema | {'label': name})
            platform.verify()
            description = PilotDescription({'resource': f'site.{name}', 'cores': 8, 'runtime': 10, 'uid': 'pilot.0000'})
            launcher_class(platform).check(platform, description)


def test_every_page_is_in_the_list() -> None:
    listed = next(page for page in PAGES if page.stem == 'README').read_text()
    assert {f']({page.name})' for page in PAGES if page.stem != 'README' and f']({page.name})' not in listed} == set()
