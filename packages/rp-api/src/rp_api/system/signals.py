"""The signals of our programs: they do not depend on what the process that has started them ignores or blocks.

A shell with `trap '' CHLD`, `nohup`, a thread that blocks all signals: programs inherit that. Ours rely on hearing of
the ends of their children, and on being told to end. Programs that are started for tasks get the defaults, too.
"""

from __future__ import annotations

import signal
from collections.abc import Collection

OF_A_TERMINAL = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT})
"""Signals that a user may keep from a program by starting it with `nohup`, or in the background of a script."""

_OF_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Signals that Python ignores to raise exceptions instead; `subprocess` gives their defaults to what it starts."""


def set_defaults(but: Collection[int] = ()) -> None:
    """Give signals that are ignored their defaults, `but` for these, and unblock all.

    To be called first thing in the main function of a program, in its main thread. Programs that run in a session of
    their own have no terminal whose hangups and interrupts could be meant for others.
    """
    for number in signal.valid_signals() - _OF_PYTHON - set(but):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
