"""`rp top` in a real pseudo-terminal, as somebody sees it who is logged in by ssh; the picture of it in the guide."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyte
import pytest
from conftest import processes_with, wait_until
from watching import as_json, close, rp_command, start

from rp_api import states
from rp_api.coordination import sessions
from rp_api.coordination.hub.store import Store
from rp_api.wire import codec
from rp_client.cli.tasks.top_screen import TopScreen

PICTURE = Path(__file__).parents[2] / 'docs' / 'reference' / 'top.svg'
ROWS, COLUMNS = 24, 80


class Screen:
    """A terminal of 80 columns with a program in it."""

    def __init__(self, *arguments: str) -> None:
        self._far, near = pty.openpty()
        fcntl.ioctl(near, termios.TIOCSWINSZ, struct.pack('HHHH', ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen([sys.executable, '-m', 'rp_client.cli', *arguments], stdin=near, stdout=near,
                                        stderr=near, start_new_session=True,
                                        env=os.environ | {'TERM': 'xterm-256color', 'COLUMNS': '', 'LINES': ''})
        os.close(near)
        os.set_blocking(self._far, False)
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)

    def until(self, condition: Callable[[str], bool]) -> str:
        """What is shown as soon as it meets a condition."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                self._stream.feed(os.read(self._far, 1 << 16))
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:   # the program has ended
                break
            if condition('\n'.join(self._screen.display)):
                return '\n'.join(self._screen.display)
        raise AssertionError('\n'.join(self._screen.display))

    def end(self) -> int:
        """The exit code of the program."""
        with suppress(OSError):
            os.set_blocking(self._far, True)
            while os.read(self._far, 1 << 16):
                pass
        return self.process.wait(30)

    def press(self, key: str) -> None:
        os.write(self._far, key.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._far)


@contextmanager
def shown(*arguments: str) -> Iterator[Screen]:
    screen = Screen(*arguments)
    try:
        yield screen
    finally:
        screen.close()


def test_a_session_in_a_terminal_of_80_columns(base: Path) -> None:
    application = start()
    try:
        with shown('top', '--interval', '0.2') as screen:
            text = screen.until(lambda text: all(re.search(pattern, text) for pattern in (
                r'66 tasks: 2 done, 2 failed, 2 running, 60 waiting', r'rate: \d', r'pilot\.0000 +ACTIVE +█+ 2/2 +- +2',
                r'task\.000006 +\S',   # waits longest
                r'exit +2 +task\.000002', 'q Quit')))
            assert all(len(line) <= COLUMNS for line in text.splitlines())
            (base / 'go').touch()
            screen.until(lambda text: '64 done, 2 failed' in text and 'no task waits' in text)
            assert as_json('task', 'list', '--count') == {'DONE': 64, 'FAILED': 2}
            screen.press('q')
            assert screen.end() == 0
        once = rp_command('top', '--once')
        assert '66 tasks: 64 done, 2 failed' in once
        assert as_json('top')['counts'] == {'DONE': 64, 'FAILED': 2}
        assert 'no terminal' in rp_command('top', code=1)
    finally:
        close(application)
        wait_until(lambda: not processes_with(str(base)))


def test_without_textual(base: Path) -> None:
    code = ("import sys; sys.modules['textual'] = None; sys.stdout.isatty = lambda: True; "
            "from rp_client.cli.program import main; sys.exit(main(['top']))")
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 1
    assert "pip install 'rp-client[top]'" in done.stderr


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A session whose hub has stored tasks in all kinds of states."""
    directory = tmp_path / 'rp.session.login1.ada.020786.0003'
    directory.mkdir(mode=0o700)
    store = Store(directory / 'hub.db')
    store.set_meta([('session', directory.name), ('created', 1.0)])
    description = {'resource': 'ncsa.delta', 'nodes': 2, 'cores': 256, 'gpus': 8}
    store.insert_pilots('pmgr.0000', [(f'pilot.000{number}', codec.pack({
        'pmgr': 'pmgr.0000', 'description': description})) for number in range(2)])
    details = codec.pack({'resource_details': {'cores': 256, 'gpus': 8, 'node_list': [{}, {}]}})
    store.update_pilots([('pilot.0000', states.PMGR_ACTIVE, details),
                         ('pilot.0001', states.PMGR_ACTIVE_PENDING, None)], announce=True)
    shared = codec.pack({'executable': './simulate', 'cores_per_rank': 4})
    uids = [f'task.{number:06d}' for number in range(2000)]
    store.tasks.insert('pilot.0000', 'tmgr.0000', shared, [(uid, codec.NOTHING) for uid in uids])
    failed = codec.pack({'exit_code': 139, 'exception': "RuntimeError('task failed')", 'exception_detail':
                         'exit code: 139', 'error': {'kind': 'exit', 'sentence': 'exit code: 139'}})
    missing = codec.pack({'exit_code': 127, 'stderr': 'sh: 1: gmx: not found\n', 'exception':
                          "RuntimeError('task failed')", 'error': {'kind': 'exit', 'sentence': 'exit code: 127'}})
    store.tasks.report([*((uid, states.DONE, None) for uid in uids[:1200]),
                        *((uid, states.FAILED, failed) for uid in uids[1200:1209]),
                        *((uid, states.FAILED, missing) for uid in uids[1209:1212]),
                        *((uid, states.AGENT_EXECUTING, None) for uid in uids[1212:1270]),
                        *((uid, states.AGENT_SCHEDULING, None) for uid in uids[1270:])], 'pilot.0000')
    store.write('UPDATE shared SET submitted = ?', (time.time() - 2 * 3600 - 60,))
    store.close()
    return directory


def test_the_picture_in_the_reference(recorded: Path) -> None:
    """With UPDATE_PICTURES set, it is made; else the one that is there has to show the same."""
    async def picture() -> str:
        app = TopScreen(lambda: sessions.records(recorded), 60.0)
        async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
            while not {'tasks:', 'Quit'} <= set(words(app.export_screenshot())):
                await pilot.pause(0.05)
            return app.export_screenshot(title='rp top')

    made = asyncio.run(picture())
    if 'UPDATE_PICTURES' in os.environ:
        PICTURE.write_text(made)
    assert words(made) == words(PICTURE.read_text())
    assert '1200' in words(made)


def words(svg: str) -> list[str]:
    """The words in a picture, without the time."""
    text = ' '.join(re.findall(r'<text[^>]*>([^<]*)</text>', svg)).replace('&#160;', ' ')
    return re.sub(r'\d\d:\d\d:\d\d', '', text).split()
