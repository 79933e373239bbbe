"""What each launch method makes of each kind of job, to the letter: the files in `golden/launch_methods`."""

from __future__ import annotations

import pytest
from launch_method_support import GOLDEN, METHODS, described, path

from rp_agent.launch_method import find
from rp_api.platforms.systems import LAUNCH_METHODS


@pytest.mark.parametrize('name', METHODS)
def test_commands_are_as_they_were(name: str) -> None:
    """If they are meant to be others now: `python packages/rp-agent/tests/launch_method_support.py`."""
    assert described(METHODS[name]) == path(name).read_text()


def test_no_file_is_left_over() -> None:
    assert {each.name for each in GOLDEN.iterdir()} == {path(name).name for name in METHODS}


def test_every_method_is_there() -> None:
    assert {method.NAME for method in METHODS.values()} == set(LAUNCH_METHODS)
    assert all(name == find.find(name).NAME for name in LAUNCH_METHODS)
