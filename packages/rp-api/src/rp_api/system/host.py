"""Facts about the host that a process runs on, and how programs are started there."""

from __future__ import annotations

import functools
import os
import sys


@functools.cache
def host_id() -> str:
    """A text that two processes share exactly when each can see the other's process id.

    It is made of the kernel's boot id and the PID namespace; the host name where there is no `/proc`.
    """
    try:
        with open('/proc/sys/kernel/random/boot_id', encoding='ascii') as file:
            return f'{file.read().strip()}:{os.readlink("/proc/self/ns/pid")}'
    except OSError:
        return os.uname().nodename


_RUN = ('import gc, os, sys; gc.disable(); sys.path[:] = [os.path.abspath(path) for path in sys.path if path]; '
        'from {} import main; gc.freeze(); gc.enable(); sys.exit(main())')


def python_program(module: str) -> list[str]:
    """The command that runs `main()` of a module with this interpreter.

    Other than with `python -m`, files in the working directory, which are the user's, are not taken for modules, and
    the program can change that directory. What it loads before it begins is no garbage, and is not searched for any.
    """
    return [sys.executable, '-c', _RUN.format(module)]
