"""The page about events in the documentation is what the catalogue says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rp_profiling.catalogue import EVENTS, ORDERS, STATES
from rp_profiling.catalogue.page import page

PAGE = Path(__file__).parents[3] / 'docs/reference/events.md'


def test_the_page_has_every_event_state_and_order() -> None:
    text = page()
    for event in EVENTS:
        assert f'| `{event.name}` | {event.meaning} |' in text
    for state in STATES:
        assert f'| `{state.name}` |' in text
    assert text.count('\nPer ') == len(ORDERS)


@pytest.mark.skipif(not PAGE.exists(), reason='the tests run without the documentation')
def test_the_page_in_the_documentation_is_up_to_date() -> None:
    assert PAGE.read_text(encoding='utf-8') == page(), (
        'run: python -m rp_profiling.catalogue.page docs/reference/events.md')
