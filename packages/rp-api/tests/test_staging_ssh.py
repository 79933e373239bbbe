"""Staging over ssh without a server: command lines, the batch language, and what is said where a program is missing.

`tests/ssh/test_ssh_urls.py` transfers files with a real server.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rp_api.constants import COPY, TRANSFER
from rp_api.errors import DescriptionError, StagingError
from rp_api.staging import expand, perform
from rp_api.staging.interruption import interruptible
from rp_api.staging.run import check_locations
from rp_api.staging.ssh import Gsisftp, Scp, Sftp, SshPlace
from rp_api.system.ssh import OPTIONS


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory as PATH, for programs of the test."""
    path = tmp_path / 'bin'
    path.mkdir()
    monkeypatch.setenv('PATH', str(path))
    return path


def recorder(path: Path) -> Path:
    """A program that keeps its arguments and its input; gives the directory with them."""
    path.write_text(f'#!/bin/sh\nfor word; do echo "$word"; done >{path}.words\n'
                    f'while read -r line; do echo "$line"; done >{path}.batch\n')
    path.chmod(0o755)
    return path.parent


@pytest.mark.parametrize(('url', 'place', 'words'), [
    ('sftp://host/a/b', ('', 'host', '', '/a/b'), ['host']),
    ('gsisftp://me@gate.example.org:2222//data/x/', ('me', 'gate.example.org', '2222', '/data/x/'),
     ['-P', '2222', 'me@gate.example.org']),
    ('scp://Alias/~/x', ('', 'Alias', '', './x'), ['Alias']),
    ('sftp://[fe80::1%eth0]:22/x', ('', '[fe80::1%eth0]', '22', '/x'), ['-P', '22', '[fe80::1%eth0]']),
    ('sftp://host/100%25 ?#x', ('', 'host', '', '/100%25 ?#x'), ['host'])])
def test_urls(url: str, place: tuple[str, ...], words: list[str]) -> None:
    assert (SshPlace.of(url), SshPlace.of(url).words) == (place, words)


@pytest.mark.parametrize(('protocol', 'program'), [(Sftp, 'sftp'), (Scp, 'sftp'), (Gsisftp, 'gsisftp')])
def test_command_lines(protocol: type[Sftp], program: str) -> None:
    assert protocol().command(SshPlace.of('x://me@host:22/a')) == [
        program, '-oBatchMode=yes', '-oConnectTimeout=15', '-oStrictHostKeyChecking=accept-new', '-oLogLevel=ERROR',
        '-oServerAliveInterval=15', '-oServerAliveCountMax=4', '-b', '-', '-P', '22', 'me@host']


def test_a_file_is_sent_by_gsisftp(programs: Path, tmp_path: Path) -> None:
    recorder(programs / 'gsisftp')
    (tmp_path / 'a b').write_text('a')
    [directive] = expand({'source': f'{tmp_path}/a b', 'target': 'gsisftp://host/data/x y/', 'action': COPY})
    perform(directive, directive['source'], directive['target'])
    assert (programs / 'gsisftp.words').read_text().split('\n') == [*OPTIONS, '-b', '-', 'host', '']
    *made, put, rename = (programs / 'gsisftp.batch').read_text().splitlines()
    assert made == ['-mkdir /data', r'-mkdir /data/x\ y', r'cd /data/x\ y']
    temporary = put.removeprefix('put -p ')
    assert rename == rf'rename {temporary} a\ b'


def test_a_pattern_is_fetched_by_gsisftp(programs: Path, tmp_path: Path) -> None:
    recorder(programs / 'gsisftp')
    [directive] = expand({'source': 'gsisftp://host/data/[ab] c*', 'target': f'{tmp_path}/in'})
    assert perform(directive, directive['source'], directive['target']) == f'{tmp_path}/in'
    assert (programs / 'gsisftp.batch').read_text() == 'get -rp /data/[ab]\\ c* .\n'


def test_a_program_is_ended_when_its_task_is_cancelled(programs: Path, tmp_path: Path) -> None:
    (programs / 'sftp').write_text(f'#!/bin/sh\necho $$ >{tmp_path}/pid\nexec /bin/sleep 100\n')
    (programs / 'sftp').chmod(0o755)
    [directive] = expand({'source': 'sftp://host/a', 'target': f'{tmp_path}/a'})
    pid = tmp_path / 'pid'
    with pytest.raises(StagingError, match='interrupted'), interruptible(
            lambda: pid.exists() and bool(pid.read_text())):
        perform(directive, directive['source'], directive['target'])
    assert not Path(f'/proc/{pid.read_text().strip()}').exists()


def test_a_missing_program(programs: Path, tmp_path: Path) -> None:
    """The client refuses what it had to do itself; what the agent does fails there."""
    said = 'gsisftp, which is needed for gsisftp://, is not installed on this host: install GSI-OpenSSH'
    with pytest.raises(DescriptionError, match=rf'\[Transfer gsisftp://host/a > a\]: {said}'):
        check_locations(expand({'source': 'gsisftp://host/a', 'action': TRANSFER}))
    with pytest.raises(DescriptionError, match=said):
        check_locations(expand({'source': 'a', 'target': 'gsisftp://host/a'}))
    directives = expand({'source': 'gsisftp://host/a', 'action': COPY})
    check_locations(directives)
    with pytest.raises(StagingError, match=f'failed on gsisftp://host/a: {said}'):
        perform(directives[0], 'gsisftp://host/a', str(tmp_path / 'a'))
    assert os.listdir(tmp_path) == ['bin']


def test_supported_schemes_are_named() -> None:
    known = r"unknown scheme 'ftp'; known are .*gsisftp://, http://, https://, scp://, sftp://"
    with pytest.raises(DescriptionError, match=known) as caught:
        check_locations(expand('ftp://me:word@host/a > b'))
    assert 'me:***@host' in str(caught.value)
    assert 'word@' not in str(caught.value)
