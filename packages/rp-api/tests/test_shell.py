"""Which shell runs the commands of users, on hosts that have different shells."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rp_api.errors import PlatformError
from rp_api.system.shell import FALLBACK, find_shell, opening

BASH = shutil.which('bash')

TELL = 'echo "$0 $# $* ${BASH_VERSION:+bash} ${KSH_VERSION:+ksh} ${RP_IN_SHELL-unset}"'


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The search path of a host that has the programs which a test puts there."""
    (tmp_path / 'bin').mkdir()
    return tmp_path / 'bin'


def put(host: Path, name: str, program: str) -> str:
    """Put a program on the host under this name; skip the test where this machine does not have it."""
    path = shutil.which(program)
    if path is None:
        (pytest.fail if 'CI' in os.environ else pytest.skip)(f'there is no {program}')
    (host / name).symlink_to(path)
    return str(host / name)


def run(host: Path, named: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = host / 'script'
    script.write_text('\n'.join([*opening(named), TELL, 'exit 5']))
    return subprocess.run(['/bin/sh', script, *arguments], env={'PATH': str(host)}, capture_output=True, text=True,
                          check=False)


def test_the_default_is_bash_where_it_is_in_the_path(host: Path) -> None:
    assert find_shell('', str(host)) == FALLBACK
    path = put(host, 'bash', 'bash')
    assert find_shell('', f'/nowhere:{host}') == path


def test_directories_that_depend_on_where_a_task_starts_are_not_searched(host: Path,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    put(host, 'bash', 'bash')
    monkeypatch.chdir(host)
    assert find_shell('', ':.:../bin') == FALLBACK


def test_a_file_that_cannot_be_executed_is_no_shell(host: Path) -> None:
    (host / 'bash').write_text('')
    assert find_shell('', str(host)) == FALLBACK


def test_a_named_shell_is_a_path_or_the_name_of_a_program(host: Path) -> None:
    put(host, 'bash', 'bash')
    path = put(host, 'mine', 'dash')
    assert find_shell('mine', str(host)) == find_shell(path, '/nowhere') == path


@pytest.mark.parametrize('named', ['mine', '/nowhere/mine'])
def test_a_named_shell_must_be_there(host: Path, named: str) -> None:
    put(host, 'bash', 'bash')
    with pytest.raises(PlatformError, match=f"'{named}' of the platform definition is not on {os.uname().nodename}"):
        find_shell(named, str(host))


def test_a_script_continues_in_bash(host: Path) -> None:
    put(host, 'bash', 'bash')
    ran = run(host, '', 'a', 'b c')
    assert (ran.stdout.split(), ran.returncode) == ([f'{host}/script', '2', 'a', 'b', 'c', 'bash', 'unset'], 5)


def test_a_script_continues_in_sh_on_a_host_without_bash(host: Path) -> None:
    ran = run(host, '', 'a')
    first, *_, last = ran.stdout.split()
    assert (first, last, ran.returncode, ran.stderr) == (f'{host}/script', 'unset', 5, '')


@pytest.mark.parametrize(('name', 'program'), [('ksh', 'ksh'), ('ash', 'busybox')])
def test_a_script_continues_in_the_shell_that_is_named(host: Path, name: str, program: str) -> None:
    put(host, 'bash', 'bash')
    path = put(host, name, program)
    by_name, by_path = run(host, name), run(host, path)
    assert by_name.stdout == by_path.stdout
    assert by_name.stdout.split() == [f'{host}/script', '0', *(['ksh'] if name == 'ksh' else []), 'unset']


def test_a_script_fails_on_a_host_without_the_shell_that_is_named(host: Path) -> None:
    ran = run(host, 'mine')
    assert (ran.returncode, ran.stdout) == (127, '')
    assert 'mine' in ran.stderr


@pytest.mark.skipif('CI' not in os.environ and BASH is None, reason='there is no bash')
def test_a_script_has_its_own_shell_below_another_script(host: Path) -> None:
    put(host, 'bash', 'bash')
    inner = host / 'inner'
    inner.write_text('\n'.join([*opening(''), TELL]))
    script = host / 'script'
    script.write_text('\n'.join([*opening(''), f'/bin/sh {inner}']))
    ran = subprocess.run(['/bin/sh', script], env={'PATH': str(host)}, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(inner), '0', 'bash', 'unset']
