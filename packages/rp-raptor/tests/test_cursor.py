"""The words that a manager shares with its ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rp_raptor.wire import cursor
from rp_raptor.wire.rank_protocol import CANCEL, interrupted, interruption

ROUNDS = 50

# a rank: takes calls until it is refused, and says how many it has
TAKER = '''
import os, sys
from rp_raptor.wire.cursor import Cursors
cursors = Cursors(sys.argv[1])
for round in range(1, int(sys.argv[2]) + 1):
    while cursors.position(0) < round << 32:
        os.sched_yield()
    taken = 0
    while cursors.take(0, (round << 32) + taken):
        taken += 1
    print(taken, flush=True)
'''


@pytest.fixture
def path(tmp_path: Path) -> Path:
    cursor.create(tmp_path / 'cursors', 3)
    return tmp_path / 'cursors'


def test_a_call_is_taken_once(path: Path) -> None:
    manager, rank = cursor.Cursors(path), cursor.Cursors(path)
    assert manager.ranks == 3
    manager.move(1, 100)
    assert rank.take(1, 100)
    assert not rank.take(1, 100)
    assert rank.take(1, 101)
    assert manager.position(1) == 102
    assert manager.position(0) == 0


def test_what_was_taken_back_cannot_be_taken(path: Path) -> None:
    manager, rank = cursor.Cursors(path), cursor.Cursors(path)
    manager.move(2, 10)
    assert rank.take(2, 10)
    assert manager.move(2, 1 << 32) == 11
    assert not rank.take(2, 11)
    assert rank.take(2, 1 << 32)


def test_marks_are_for_one_rank(path: Path) -> None:
    cursors = cursor.Cursors(path)
    cursors.set_mark(1, interruption(7 << 32 | 5, CANCEL))
    assert interrupted(cursors.mark(1)) == (7 << 32 | 5, CANCEL)
    assert cursors.mark(0) == cursors.mark(2) == cursors.position(1) == 0


def test_only_the_owner_can_use_the_file_and_it_replaces_none(path: Path) -> None:
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        cursor.create(path, 3)


@pytest.mark.parametrize('rank', [-1, 3])
def test_a_rank_that_is_not_there_is_refused(path: Path, rank: int) -> None:
    with pytest.raises(IndexError, match=f'rank {rank} does not exist: there are 3'):
        cursor.Cursors(path).take(rank, 0)


def test_two_processes_never_have_the_same_call(path: Path) -> None:
    command = [sys.executable, '-c', TAKER, str(path), str(ROUNDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as rank:
        assert rank.stdout
        manager = cursor.Cursors(path)
        for round in range(1, ROUNDS + 1):
            manager.move(0, round << 32)
            while manager.position(0) == round << 32:
                os.sched_yield()
            stopped = manager.move(0, 0)
            assert int(rank.stdout.readline()) == stopped - (round << 32)
    assert rank.returncode == 0
