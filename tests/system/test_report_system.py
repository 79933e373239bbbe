"""What a person sees who runs an application in a terminal: a line while it waits."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

APPLICATION = Path(__file__).with_name('reporting_application.py')
EXECUTOR = Path(__file__).with_name('reporting_executor.py')
ERASE = '\r\x1b[K'


def seen(base: Path, *command: str | Path, **environment: str) -> str:
    """All that a program writes to its terminal."""
    far, near = pty.openpty()
    known = {name: value for name, value in os.environ.items() if not name.endswith('_REPORT')}
    with subprocess.Popen([sys.executable, *command], stdin=near, stdout=near, stderr=near, cwd=base,
                          env=known | {'TERM': 'xterm', 'COLUMNS': '100'} | environment) as process:
        os.close(near)
        text = b''
        try:
            while data := os.read(far, 65536):
                text += data
        except OSError:   # the other end is closed
            pass
        os.close(far)
        assert process.wait(60) == 0, text
    return text.decode()


@pytest.mark.long
def test_waits_in_a_terminal(base: Path) -> None:
    _, shown, off, interrupted = re.split(r'(?:first|second|third)\r\n', seen(base, APPLICATION, base))
    assert re.fullmatch(r'(\r\x1b\[Ktasks \S+ 0/2, 2 running)\r\x1b\[K', shown)
    assert off == ''
    bar, rest = interrupted.split('interrupted\r\n')
    assert '0/2, 2 running' in bar
    assert bar.endswith(ERASE)
    assert 'Traceback' not in rest
    assert '2 tasks are cancelled, as the session closes' in rest


@pytest.mark.long
def test_an_executor_in_a_terminal(base: Path) -> None:
    """The line of the executor, and those of its program and of its functions above."""
    text = seen(base, EXECUTOR, 'working')
    assert re.search(r'executor \S+ \d/10, (\d done, )?2 running', text)
    lines = lines_on_screen(text.replace('\r\n', '\n'))
    assert lines[0] == 'a line of the program'
    assert sorted(lines[1:]) == [f'work: at work on {number}' for number in range(10)]


@pytest.mark.long
def test_an_executor_whose_report_is_off(base: Path) -> None:
    text = seen(base, EXECUTOR, 'working', RADICAL_REPORT='FALSE')
    assert ERASE not in text
    assert text.count('work: at work') == 10


@pytest.mark.long
def test_the_command_in_a_terminal(base: Path) -> None:
    """The line of `rp run`, and the outputs of its tasks above; nothing else is said at the end."""
    text = seen(base, '-m', 'rp_client.cli', 'run', '--cores', '2', '--', 'sh', '-c', 'sleep {}; echo slept {}', ':::',
                '1', '2', '3')
    assert re.search(r'tasks \S+ \d/3, (\d done, )?[12] running', text)
    assert lines_on_screen(text.replace('\r\n', '\n')) == ['slept 1', 'slept 2', 'slept 3']


def lines_on_screen(raw: str) -> list[str]:
    """What a terminal shows after it has got this, which erases lines, but does not move between them."""
    return [line for each in raw.split('\n') if (line := each.split(ERASE)[-1].rstrip('\r'))]
