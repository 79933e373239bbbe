"""The look at what a task has left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from leftovers import open_descriptors

from rp_agent.stager.look import look

UID = 'task.000000'


def test_sizes_and_other_names(tmp_path: Path) -> None:
    (tmp_path / f'{UID}.out').write_text('12345')
    (tmp_path / f'{UID}.err').touch()
    for name in (f'{UID}.prof', f'{UID}1', 'task', '.hidden', '...', 'ö'):
        (tmp_path / name).touch()
    (tmp_path / 'directory').mkdir()
    out, err, names = look(str(tmp_path), UID)
    assert (out, err) == (5, 0)
    assert sorted(names) == sorted([f'{UID}1', 'task', '.hidden', '...', 'ö', 'directory'])


def test_outputs_that_are_links(tmp_path: Path) -> None:
    (tmp_path / 'target').write_text('12')
    (tmp_path / f'{UID}.out').symlink_to('target')
    (tmp_path / f'{UID}.err').symlink_to('nowhere')
    assert look(str(tmp_path), UID) == (2, -1, ['target'])


def test_no_outputs(tmp_path: Path) -> None:
    assert look(str(tmp_path), UID) == (-1, -1, [])


@pytest.mark.parametrize('name', ['none', 'file', 'a\0b'])
def test_no_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / 'file').touch()
    assert look(f'{tmp_path}/{name}', UID) == (-1, -1, [])


def test_many_and_long_names(tmp_path: Path) -> None:
    names = sorted(f'{number:03}{"x" * 200}' for number in range(300))
    for name in names:
        (tmp_path / name).touch()
    assert sorted(look(str(tmp_path), UID)[2]) == names


def test_a_uid_that_is_too_long_for_a_file(tmp_path: Path) -> None:
    (tmp_path / 'file').touch()
    assert look(str(tmp_path), 'x' * 300) == (-1, -1, ['file'])


def test_names_that_are_no_text(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b'/\xff', os.O_CREAT | os.O_WRONLY))
    assert look(str(tmp_path), UID)[2] == ['\udcff']


def test_nothing_stays_open(tmp_path: Path) -> None:
    before = open_descriptors()
    look(str(tmp_path), UID)
    look(f'{tmp_path}/none', UID)
    assert open_descriptors() <= before
