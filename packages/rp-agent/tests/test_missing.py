"""Sandboxes that do not exist are found with one look at their directory, if that is worth it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rp_agent.stager.component import MAX_ENTRIES_PER_SANDBOX, MIN_SANDBOXES, Missing


def sandboxes(directory: Path, count: int = MIN_SANDBOXES) -> list[str]:
    return [f'{directory}/task.{number}' for number in range(count)]


def test_only_what_is_not_there_is_missing(tmp_path: Path) -> None:
    other = tmp_path / 'other'
    wanted = [*sandboxes(tmp_path), *sandboxes(other)]
    (tmp_path / 'task.1').mkdir()
    other.mkdir()
    (other / 'task.2').mkdir()
    assert Missing().of(wanted) == set(wanted) - {str(tmp_path / 'task.1'), str(other / 'task.2')}


def test_few_are_not_worth_a_look(tmp_path: Path) -> None:
    assert Missing().of(sandboxes(tmp_path, MIN_SANDBOXES - 1)) == set()


def test_what_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert Missing().of(sandboxes(tmp_path / 'nowhere')) == set()


def test_a_crowded_directory_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(MAX_ENTRIES_PER_SANDBOX * MIN_SANDBOXES + 1):
        (tmp_path / f'other.{number}').touch()
    missing = Missing()
    assert missing.of(sandboxes(tmp_path)) == set(sandboxes(tmp_path))
    monkeypatch.setattr(os, 'listdir', lambda path: pytest.fail('it was looked at again'))
    assert missing.of(sandboxes(tmp_path)) == set()
