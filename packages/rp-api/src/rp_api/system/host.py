"""The identity of this host, and the command to start Python programs on it."""

from __future__ import annotations

import functools
import os
import pwd
import sys
from collections.abc import Mapping


@functools.cache
def host_id() -> str:
    """Return a text that is equal in two processes exactly if their process ids are in the same namespace.

    It consists of the kernel's boot id and the PID namespace; without `/proc`, it is the host name.
    """
    try:
        return f'{boot_id()}:{os.readlink("/proc/self/ns/pid")}'
    except OSError:
        return os.uname().nodename


def boot_id() -> str:
    """Return the kernel's id of its start; without `/proc`, it is the host name."""
    try:
        with open('/proc/sys/kernel/random/boot_id', encoding='ascii') as file:
            return file.read().strip()
    except OSError:
        return os.uname().nodename


def with_home(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with HOME, which the user database has if it is not set; unchanged for unknown users."""
    if environ.get('HOME'):
        return dict(environ)
    try:
        return {**environ, 'HOME': pwd.getpwuid(os.getuid()).pw_dir}
    except KeyError:
        return dict(environ)


_RUN = ('import gc, os, sys; gc.disable(); sys.path[:] = [os.path.abspath(path) for path in sys.path if path]; '
        'from {} import main; gc.freeze(); gc.enable(); sys.exit(main())')


def python_program(module: str) -> list[str]:
    """Return the command that runs `main()` of a module with this interpreter.

    Unlike with `python -m`, modules are not searched in the working directory, which is the user's, and the program can
    change that directory. Objects that exist before `main()` are excluded from garbage collection.
    """
    return [sys.executable, '-c', _RUN.format(module)]
