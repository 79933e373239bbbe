"""All that a session makes outside of its directories is this user's alone, and was nobody else's before."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rp_api.errors import OwnershipError
from rp_api.system import private
from rp_api.system.shared_directory import shared_memory

pytestmark = pytest.mark.timeout(360)   # all system calls with a path are traced

TIMEOUT = 120.0

_PROGRAM = Path(__file__).parent / 'everything.py'
_CALL = re.compile(r'(\w+)\((.*)')
_PATH = re.compile(r'(?:AT_FDCWD<(?P<cwd>[^>]*)>, |\d+<(?P<at>[^>]*)>, |sun_path=)?"(?P<path>[^"]+)"(?P<rest>.*)')
_LINKS = ('bind', 'symlink', 'symlinkat', 'link', 'linkat')
_MAKES = (*_LINKS, 'mkdir', 'mkdirat', 'mknod', 'mknodat', 'rename', 'renameat', 'renameat2')


class Call(NamedTuple):
    """A successful system call with a path; `rest` are its other arguments."""

    name: str
    path: str
    rest: str

    @property
    def makes(self) -> bool:
        return self.name in _MAKES or 'O_CREAT' in self.rest

    @property
    def is_checked(self) -> bool:
        """Whether it cannot take what is there for its own, or looks whose that is without following links."""
        looks = 'O_NOFOLLOW' in self.rest or self.name == 'lstat' or 'AT_SYMLINK_NOFOLLOW' in self.rest
        return looks or 'O_EXCL' in self.rest or self.name in _LINKS


def calls(trace: Path) -> Iterator[Call]:
    """The calls in the output of `strace -f -y`, those that were interrupted by the output of others put together."""
    begun: dict[str, str] = {}
    for line in trace.read_text(errors='replace').splitlines():
        pid, _, text = line.partition(' ')
        text = text.strip()
        if text.endswith('<unfinished ...>'):
            begun[pid] = text.removesuffix('<unfinished ...>')
            continue
        if text.startswith('<... '):
            text = begun.pop(pid, '') + text.partition(' resumed>')[2]
        call = _CALL.match(text)
        if call and not re.search(r'= -1 E\w+', text):
            for found in list(re.finditer(_PATH, call[2]))[:1]:
                base = found['cwd'] or found['at'] or '/'
                yield Call(call[1], os.path.normpath(os.path.join(base, found['path'])), found['rest'])


def is_shared(directory: str) -> bool:
    """Return whether all users can make entries in a directory."""
    try:
        return bool(os.stat(directory).st_mode & stat.S_IWOTH)
    except FileNotFoundError:
        return False


@pytest.fixture(scope='module')
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Call]]]:
    """A session at work, and the calls so far; the base directory is one in which all users can make entries."""
    if shutil.which('strace') is None:
        (pytest.fail if 'CI' in os.environ else pytest.skip)('not installed: strace')
    tmp_path = tmp_path_factory.mktemp('outside')
    base = tmp_path / 'shared'
    for name in (base, tmp_path / 'tmp'):
        name.mkdir()
        name.chmod(0o1777)
    environ = os.environ | {'HOME': str(tmp_path / 'home'), 'TMPDIR': str(tmp_path / 'tmp'),
                            'RADICAL_BASE': str(tmp_path / 'tmp')}
    command = ['strace', '-f', '--seccomp-bpf', '-qq', '-y', '-s', '4096', '-e', 'trace=%file,bind', '-o',
               str(tmp_path / 'trace'), sys.executable, str(_PROGRAM), str(base)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True,
                          cwd=tmp_path) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        while line and not line.startswith('['):
            line = process.stdout.readline()
        assert line, 'the application has failed'
        inside = tuple(f'{path}/' for path in json.loads(line))
        found = [call for call in calls(tmp_path / 'trace') if not f'{call.path}/'.startswith(('/proc/', '/dev/null/',
                                                                                              *inside))]
        yield tmp_path, found
        process.communicate('go on\n', TIMEOUT)
    assert process.returncode == 0


def test_all_that_is_made_is_checked(everything: tuple[Path, list[Call]]) -> None:
    """Asked while the session is at work, for what is there; the calls tell of what is there no more."""
    place, found = everything
    made = {call.path for call in found if call.makes and '/__pycache__' not in call.path}
    kinds = [rf'{place}/{end}' for end in (
        r'tmp/rp\.\w+$', r'tmp/rp\.\w+/\w+$', r'tmp/\.radical/pilot/counters', r'shared/\.rp\.cache',
        r'shared/radical\.pilot\.sandbox/env\.\d+$', r'shared/named\.lock$')]
    kinds.append(rf'{shared_memory()}/radical\.pilot\.\d+\.')
    for kind in kinds:   # it has seen what there is
        assert [path for path in made if re.match(kind, path)], kind
    for path in sorted(made):
        if os.path.lexists(path) and not stat.S_ISLNK(os.lstat(path).st_mode):
            private.check(path)
            private.check_entry(path, above=True)
    checked = {call.path for call in found if call.is_checked}
    assert [path for path in sorted(made) if is_shared(os.path.dirname(path)) and path not in checked] == []


def test_the_check_refuses_what_others_could_have_made(everything: tuple[Path, list[Call]]) -> None:
    """The same paths, each in turn as another user's and as one that others can write to."""
    _, found = everything
    me = os.geteuid()
    for path in {call.path for call in found if call.makes and os.path.isfile(call.path)}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, 'geteuid', lambda: me + 4321)
            with pytest.raises(OwnershipError, match='is not ours alone'):
                private.check(path)
