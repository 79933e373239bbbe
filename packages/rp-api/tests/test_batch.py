"""Descriptions of rows are what the common description and the row say, whatever is read of them first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.batch import RowDescription
from rp_api.errors import CoordinationError
from rp_api.wire import codec

NAMES = ['mode', 'args', 'code', 'after', 'a' * 40]
parts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 300) | st.text(), max_size=3)


@given(parts, parts, st.sampled_from([*NAMES, 'none']))
def test_a_row_is_the_whole_description(common: dict[str, Any], own: dict[str, Any], name: str) -> None:
    row, whole = RowDescription(common, codec.pack(own)), {**common, **own}
    assert (name in row) == (name in whole)
    assert row.get(name) == whole.get(name)
    assert row == whole
    assert codec.pack(row) == codec.pack(whole)
    assert set(row.names) == set(own)


def test_values_are_unpacked_when_they_are_read() -> None:
    row = RowDescription({'mode': 'm'}, codec.pack({'args': [1]})[:-1])
    assert 'args' in row
    assert 'after' not in row
    with pytest.raises(CoordinationError):
        row['args']


def test_what_is_no_description_is_refused() -> None:
    with pytest.raises(CoordinationError):
        RowDescription({}, codec.pack([1]))
