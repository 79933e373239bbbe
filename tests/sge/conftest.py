"""A Grid Engine for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from grid_engine import GridEngine, grid_engine


@pytest.fixture(scope='package')
def cluster() -> Iterator[GridEngine]:
    """A Grid Engine of 16 slots."""
    with grid_engine() as found:
        yield found
