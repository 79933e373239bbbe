"""Programs get defaults for signals that were ignored or blocked when they were started."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Collection

import pytest

from rp_api.system import signals

PROGRAM = '''
import json, os, signal, sys
from rp_api.system import signals

how, *but = sys.argv[1:]
numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
if how == 'inherits':
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    os.execv(sys.executable, [sys.executable, '-c', sys.orig_argv[2], 'sets', *but])
signals.set_defaults(set(map(int, but)))
print(json.dumps([[number for number in numbers if signal.getsignal(number) is signal.SIG_IGN],
                  list(signal.pthread_sigmask(signal.SIG_BLOCK, ()))]), flush=True)
try:
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
except KeyboardInterrupt:
    print(json.dumps('interrupted'))
'''


def run(how: str, but: Collection[int] = ()) -> tuple[set[int], set[int], str]:
    """The signals that a program still ignores, those that it still blocks, and what SIGINT does."""
    done = subprocess.run([sys.executable, '-c', PROGRAM, how, *map(str, map(int, but))], capture_output=True,
                          text=True, timeout=60, check=True)
    (ignored, blocked), interrupted = map(json.loads, done.stdout.splitlines())
    return set(ignored), set(blocked), interrupted


@pytest.mark.parametrize('how', ['sets', 'inherits'])
def test_all_are_set(how: str) -> None:
    """But for those that Python itself ignores."""
    assert run(how) == ({signal.SIGPIPE, signal.SIGXFSZ}, set(), 'interrupted')


def test_some_are_left() -> None:
    assert run('inherits', but=[signal.SIGHUP, signal.SIGQUIT]) == (
        {signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ}, set(), 'interrupted')


def test_handlers_are_left() -> None:
    def handler(*_: object) -> None:
        """Not called."""

    before = signal.signal(signal.SIGUSR2, handler)
    try:
        signals.set_defaults()
        assert signal.getsignal(signal.SIGUSR2) is handler
    finally:
        signal.signal(signal.SIGUSR2, before)
