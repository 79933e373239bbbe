"""What a person sees who runs an application in a terminal: pilots and a bar, during waits only."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

APPLICATION = Path(__file__).with_name('reporting_application.py')


def seen(base: Path) -> str:
    """All that the application writes to its terminal."""
    far, near = pty.openpty()
    known = {name: value for name, value in os.environ.items() if not name.endswith('_REPORT')}
    with subprocess.Popen([sys.executable, str(APPLICATION), str(base)], stdin=near, stdout=near, stderr=near,
                          env=known | {'TERM': 'xterm', 'COLUMNS': '100'}) as process:
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
    _, shown, off, interrupted = re.split(r'(?:first|second|third)\r\n', seen(base))
    for words in ('pilot.0000  PMGR_ACTIVE  local.exact', 'tasks', '0/2'):
        assert words in shown
    assert off == ''
    bar, rest = interrupted.split('interrupted\r\n')
    assert '0/2' in bar
    assert bar.endswith('\x1b[2K')   # erased
    assert 'Traceback' not in rest
