"""Names of signals, and handling of signals in our programs, independent of those that the parent ignores or blocks.

Programs inherit ignored signals (`trap '' CHLD`, `nohup`) and blocked ones. Ours rely on signals about the end of
children and on requests to end. Programs that are started for tasks get the defaults, too.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from types import FrameType

OF_A_TERMINAL = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT})
"""Signals that a user may block for a program with `nohup`, or by starting it in the background of a script."""

WARNINGS = frozenset({signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU})
"""Signals by which batch systems and users warn the processes of a job, which is not to end by them."""

_OF_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Signals that Python ignores to raise exceptions instead; `subprocess` resets them for its children."""


def set_defaults(but: Collection[int] = ()) -> None:
    """Reset ignored signals, except those in `but`, survive warnings, and unblock all.

    Call this first in the main function of a program, in its main thread. Programs in a session of their own have no
    terminal whose hangups and interrupts could be meant for others. Programs that it starts have the defaults.
    """
    for number in WARNINGS - set(but):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(number, survive)
    for number in signal.valid_signals() - _OF_PYTHON - WARNINGS - set(but):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def survive(number: int, frame: FrameType | None) -> None:
    """Handle a signal by doing nothing; unlike an ignored signal, programs that are started do not inherit this."""


def ignore_warnings() -> None:
    """Ignore warnings until `set_defaults` is called: for children of ours, before they execute their program."""
    for number in WARNINGS:
        signal.signal(number, signal.SIG_IGN)


def name_of(number: int) -> str:
    """Return the name of a signal, such as `SIGTERM` or `SIGRTMIN+3`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f'SIGRTMIN+{number - signal.SIGRTMIN}'
