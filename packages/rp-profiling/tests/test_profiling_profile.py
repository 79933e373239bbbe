"""The reader of profiles: whole rows come back, and what a crash leaves behind does not matter."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest

from rp_profiling.read.files import profiles_below
from rp_profiling.read.profile import Row, read_profile
from rp_profiling.write.tracer import HEADER, LOGGER

ROW = '1700000000.2500000,advance,agent_0,MainThread,task.000000,AGENT_EXECUTING,a message'


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n'.join(lines))
    return path


def test_a_row_has_named_fields_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / 'a.prof', HEADER, ROW, '')
    expected = Row(
        time=1700000000.25,
        event='advance',
        comp='agent_0',
        thread='MainThread',
        uid='task.000000',
        state='AGENT_EXECUTING',
        msg='a message',
    )
    assert read_profile(path) == [expected]


def test_repeated_headers_comments_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / 'a.prof', HEADER, ROW, '', '# a comment', HEADER, ROW, '')
    assert len(read_profile(path)) == 2


@pytest.mark.parametrize('length', [3, 18, 26, 60])
def test_a_torn_last_row_is_left_out_with_a_warning(
    tmp_path: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / 'a.prof', HEADER, ROW, ROW[:length])
    with caplog.at_level(logging.WARNING, LOGGER):
        assert len(read_profile(path)) == 1
    assert caplog.messages == [f'profile {path}: 1 incomplete rows skipped']


def test_a_row_torn_within_a_character_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / 'a.prof'
    path.write_bytes(f'{ROW}\n{ROW} größe'.encode()[:-2])
    assert [row.msg for row in read_profile(path)] == ['a message', 'a message grö\ufffd']


def test_a_row_whose_time_is_no_number_is_left_out(tmp_path: Path) -> None:
    assert read_profile(write(tmp_path / 'a.prof', 'when,a,b,c,d,e,f', ROW, '')) == [
        Row(1700000000.25, *ROW.split(',')[1:])
    ]


def test_commas_beyond_the_sixth_belong_to_the_message(tmp_path: Path) -> None:
    (row,) = read_profile(write(tmp_path / 'a.prof', f'{ROW},and, more\r', ''))
    assert row.msg == 'a message,and, more'


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_profile(tmp_path / 'none.prof')


def test_profiles_beside_what_tasks_leave(tmp_path: Path) -> None:
    """A thousand directories one in the other, links in circles, and what only looks like a profile."""
    write(tmp_path / 'pilot/task.prof', HEADER, ROW)
    (tmp_path / 'pilot/self').symlink_to('.')
    (tmp_path / 'pilot/directory.prof').mkdir()
    fd = os.open(tmp_path / 'pilot', os.O_RDONLY)
    for _ in range(1500):
        os.mkdir('deep', dir_fd=fd)
        below = os.open('deep', os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    try:
        assert [row.event for path in profiles_below(tmp_path) for row in read_profile(path)] == ['advance']
    finally:
        subprocess.run(['rm', '-r', tmp_path / 'pilot/deep'], check=True, timeout=60)
