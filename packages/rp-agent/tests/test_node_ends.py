"""How it shows that one of the sub-agents has ended that a launcher has started together: the script and its reader."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from rp_agent.nodes import node_launch
from rp_api.loop.event_loop import Loop

MARK = 'RP_SUB_AGENT_ENDED'


def told(command: list[str], variables: tuple[str, ...], **environment: str) -> str:
    """What the script says that starts this command."""
    ran = subprocess.run(['/bin/sh', '-c', node_launch.script(command, variables)], env=environment, check=True,
                         capture_output=True, text=True)
    assert ran.stderr == ''
    return ran.stdout


def test_the_script_tells_how_and_where() -> None:
    host = os.uname().nodename
    assert told(['true'], ()) == f'{MARK} 0 {host} \n'
    assert told(['sh', '-c', 'echo "no luck" >&2; exit 3'], ('A', 'B'), B='7') == f'no luck\n{MARK} 3 {host} 7\n'
    assert told(['sh', '-c', 'kill -9 $$'], ('A', 'B'), A='4', B='7', SLURMD_NODENAME='n3') in (
        f'{MARK} 137 n3 4\n', f'Killed\n{MARK} 137 n3 4\n')


def test_the_script_outlives_signals_that_are_for_the_agent() -> None:
    """Its sub-agent ignores them, too, and has to be waited for."""
    assert told(['sh', '-c', 'kill -TERM $PPID; kill -INT $PPID; exit 5'], ()).startswith(f'{MARK} 5 ')


class Heard:
    """A reader at the end of a pipe: what it has heard, and what it has written."""

    def __init__(self, path: Path, *names: str) -> None:
        self.path = path
        self.loop = Loop()
        self.ends: list[tuple[int, int]] = []
        reading, self.writing = os.pipe()
        self.pipe: IO[bytes] = os.fdopen(reading, 'rb')
        self.reader = node_launch.Reader(self.loop, self.pipe, str(path), names,
                                       lambda index, code: self.ends.append((index, code)))

    def hear(self, text: str) -> list[tuple[int, int]]:
        """The ends that are told by this output."""
        before = len(self.ends)
        os.write(self.writing, text.encode())
        self.reader._read()
        return self.ends[before:]

    def close(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
        self.reader.close()
        self.loop.close()


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Callable[..., Heard]]:
    made: list[Heard] = []

    def of_nodes(*names: str) -> Heard:
        made.append(Heard(tmp_path / 'out', *names))
        return made[-1]

    yield of_nodes
    for each in made:
        each.close()


def test_names_come_before_ranks(heard: Callable[..., Heard]) -> None:
    nodes = heard('a.domain', 'b', 'c')
    assert nodes.hear(f'{MARK} 3 c 0\n{MARK} 0 a \n{MARK} 1 b.other 9\n') == [(2, 3), (0, 0), (1, 1)]
    assert nodes.hear(f'{MARK} 3 unknown 1\n') == [(1, 3)]
    assert nodes.path.read_text() == ''


@pytest.mark.parametrize('broken', ['', '3', '3 unknown', '3 unknown 3', 'x c 1', '3 unknown x'])
def test_what_is_not_understood_means_nothing(heard: Callable[..., Heard], broken: str) -> None:
    assert heard('a', 'b', 'c').hear(f'{MARK} {broken}\n') == []


def test_pretended_nodes_are_told_by_ranks(heard: Callable[..., Heard]) -> None:
    assert heard('localhost', 'localhost').hear(f'{MARK} 1 localhost 1\n') == [(1, 1)]


def test_all_else_goes_to_the_file(heard: Callable[..., Heard]) -> None:
    """Also what stands before the mark, in whatever pieces it comes."""
    nodes = heard('a', 'b')
    assert nodes.hear(f'one\ntwo{MARK} 1') == []
    assert nodes.hear(' b 0\nthr') == [(1, 1)]
    assert nodes.hear('ee\n\nfour') == []
    assert nodes.path.read_text() == 'one\ntwo\nthree\n\n'
    nodes.reader.close()
    assert nodes.path.read_text() == 'one\ntwo\nthree\n\nfour'
    assert nodes.pipe.closed


def test_nobody_writes_any_more(heard: Callable[..., Heard]) -> None:
    """The loop does not hear of it for ever."""
    nodes = heard('a')
    os.close(nodes.writing)
    nodes.writing = -1
    nodes.loop.call_later(0.05, nodes.loop.stop)
    nodes.loop.run()
    nodes.loop.add_fd(nodes.pipe.fileno(), lambda: None)   # FileExistsError if it were still watched
