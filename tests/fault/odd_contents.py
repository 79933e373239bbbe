"""A task that leaves odd things behind: `odd_contents.py KIND...` makes them in its working directory.

Some kinds concern the directory itself, or the files that the agent looks at afterwards.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path

DEPTH = 1500
"""Directories one in the other: more than functions can call themselves, and than a path of them can name."""

SPARSE = 1 << 40


def deep(name: str = 'd' * 20) -> None:
    """A directory that no path leads to the bottom of."""
    os.mkdir('deep')
    fd = os.open('deep', os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open('bottom', os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)


def wide() -> None:
    """Many files."""
    os.mkdir('wide')
    for number in range(3000):
        os.close(os.open(f'wide/{number}', os.O_WRONLY | os.O_CREAT))


def closed() -> None:
    """Files and directories that nobody may open."""
    for path in ('closed/below/below', 'closed/other'):
        os.makedirs(path)
    Path('closed/file').touch(0)
    for path in ('closed/below/below', 'closed/below', 'closed/other', 'closed'):
        os.chmod(path, 0)


def pipes() -> None:
    """What is neither a file nor a directory."""
    os.mkdir('pipes')
    os.mkfifo('pipes/fifo')
    os.chdir('pipes')
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind('socket')
    os.chdir('..')


def links() -> None:
    """Links that lead in a circle, nowhere, and out of the sandbox."""
    os.mkdir('links')
    for name, target in (('loop', 'loop'), ('self', '.'), ('up', '..'), ('nowhere', 'x' * 3000), ('out', '/etc'),
                         ('a', 'b'), ('b', 'a')):
        os.symlink(target, f'links/{name}')


def names() -> None:
    """Names that are no text, or more than one line."""
    os.mkdir('names')
    for name in (b'new\nline', b'\xff\xfe', b'-rf', b'$(id)', b"'", b'"', b'\\', b' ', b'*', b'\x01\x7f', b'n' * 255,
                 'ñ日'.encode()):
        os.close(os.open(b'names/' + name, os.O_WRONLY | os.O_CREAT))
        os.mkdir(b'names/d' + name[:200])


def sparse() -> None:
    """A file that is larger than any disk."""
    with open('sparse', 'wb') as file:
        file.truncate(SPARSE)


def loud() -> None:
    """A lot of output, none of which is text."""
    os.write(1, bytes(range(256)) * 40_000)
    os.write(2, b'\xff' * 1_000_000)


def quiet() -> None:
    """A standard output of which nothing can be read in the end."""
    os.ftruncate(1, SPARSE)


def replaced() -> None:
    """Standard files, and what scripts note, are something else in the end."""
    uid = os.environ['RP_TASK_ID']
    for ending, make in (('.out', os.mkfifo), ('.err', os.mkdir), ('.ranks', os.mkfifo), ('.prof', os.mkdir),
                         ('.launch.out', os.mkfifo)):
        name = f'{uid}{ending}'
        if os.path.isfile(name):
            os.unlink(name)
        if not os.path.exists(name):
            make(name)


def forbidden() -> None:
    """The sandbox itself cannot be opened any more."""
    os.chmod('.', 0)


def gone() -> None:
    """There is no sandbox any more."""
    shutil.rmtree(os.getcwd())


def elsewhere() -> None:
    """The sandbox is a link to another directory, which must not be touched."""
    sandbox = os.getcwd()
    precious = Path(sandbox).with_name('precious')
    precious.mkdir(exist_ok=True)
    (precious / 'file').touch()
    shutil.rmtree(sandbox)
    os.symlink(precious, sandbox)


def a_file() -> None:
    """The sandbox is a file."""
    sandbox = os.getcwd()
    shutil.rmtree(sandbox)
    Path(sandbox).touch()


def failing() -> None:
    """Nothing but an error."""
    sys.exit(3)


def killed() -> None:
    """An end by a signal."""
    os.kill(os.getpid(), 9)


THINGS: dict[str, Callable[[], object]] = {
    'deep': deep, 'wide': wide, 'closed': closed, 'pipes': pipes, 'links': links, 'names': names, 'sparse': sparse}
"""Names of files and directories, and what makes them."""

ENDS: dict[str, Callable[[], object]] = {
    'loud': loud, 'quiet': quiet, 'replaced': replaced, 'forbidden': forbidden, 'gone': gone, 'elsewhere': elsewhere,
    'a_file': a_file, 'failing': failing, 'killed': killed}
"""What comes last."""


if __name__ == '__main__':
    for kind in sys.argv[1:]:
        {**THINGS, **ENDS}[kind]()
