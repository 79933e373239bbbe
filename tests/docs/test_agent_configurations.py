"""The examples of agent configurations: agents accept them, and one is refused in a smaller pilot as the page says."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from pages import DOCS

from rp_agent.components import layout
from rp_api.errors import DescriptionError

PAGE = (DOCS / 'reference/platform-definitions.md').read_text()
EXAMPLES: list[dict[str, Any]] = [ast.literal_eval(f'{{{text}}}') for text in re.findall(
    r'    PilotDescription\(\{\.\.\., (.*?)\}\)\n', PAGE, re.DOTALL)]


def test_examples() -> None:
    assert len(EXAMPLES) == 4
    for example in EXAMPLES:
        nodes = example.get('nodes', 1)
        reserved = layout.reserved_nodes(example['_config'], nodes)
        assert layout.read(example['_config'], nodes - reserved).instances
    assert (nodes, reserved) == (66, 2)


def test_the_error() -> None:
    with pytest.raises(DescriptionError) as caught:
        layout.reserved_nodes(EXAMPLES[-1]['_config'], 2)
    assert str(caught.value) in ' '.join(PAGE.split())
