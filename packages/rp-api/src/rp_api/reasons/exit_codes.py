"""The usual meanings of exit codes and signals of programs."""

from __future__ import annotations

from collections.abc import Mapping

from rp_api.system.signals import name_of

SHELL_SIGNAL = 128
"""Exit codes above are those of shells: 128 and the number of the signal that has ended their command."""

_MOST_SIGNALS = 64

CODES: Mapping[int, str] = {
    1: 'a general error',
    2: 'wrong arguments, or a file that is missing',
    64: 'wrong arguments (EX_USAGE)',
    66: 'an input file is missing (EX_NOINPUT)',
    70: 'an internal error of the program (EX_SOFTWARE)',
    73: 'an output file cannot be created (EX_CANTCREAT)',
    74: 'an error of input or output (EX_IOERR)',
    75: 'a temporary failure (EX_TEMPFAIL)',
    77: 'a permission is missing (EX_NOPERM)',
    78: 'a wrong configuration (EX_CONFIG)',
    124: 'the limit of the command `timeout` was exceeded',
    125: 'the launcher or container has failed before the program',
    126: 'the program could not be executed',
    127: 'the program, or a library of it, was not found',
    255: 'a general error, or a value that is no exit code',
}
"""The usual meanings of exit codes."""

SIGNALS: Mapping[str, str] = {
    'SIGHUP': 'its terminal or session has ended',
    'SIGINT': 'it was interrupted',
    'SIGILL': 'an instruction that the processor does not have',
    'SIGABRT': 'the program has ended itself after an error, such as a failed assertion',
    'SIGBUS': 'an access to memory or to a mapped file that is not there, as when /dev/shm is full',
    'SIGFPE': 'an arithmetic error, such as a division by zero',
    'SIGKILL': 'killed by the system for its memory, by the batch system, or by a user',
    'SIGSEGV': 'a segmentation fault: an access to memory that is not its own',
    'SIGPIPE': 'it has written to a program that has ended',
    'SIGTERM': 'it was told to end, as batch systems do at a time limit',
    'SIGXCPU': 'it has used more CPU time than its limit',
    'SIGXFSZ': 'it has written a larger file than its limit',
    'SIGSYS': 'a system call that is not allowed',
}
"""What the signals that end programs usually mean."""

CRASHES = frozenset({'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGSEGV', 'SIGSYS', 'SIGTRAP'})
"""The signals of defects of the program."""


def signal_of(code: int | None) -> int | None:
    """Return the number of the signal that an exit code stands for, negative or of a shell; None if for none."""
    if code is None:
        return None
    number = -code if code < 0 else code - SHELL_SIGNAL
    return number if 0 < number <= _MOST_SIGNALS else None


def meaning(code: int) -> str:
    """Return the usual meaning of an exit code, with the name of its signal; empty if it has none."""
    number = signal_of(code)
    if number is None:
        return CODES.get(code, '')
    name = name_of(number)
    return f'{name}: {SIGNALS[name]}' if name in SIGNALS else name
