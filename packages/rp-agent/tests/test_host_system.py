"""What resource managers ask the real host: files, programs, names, and the health of other nodes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rp_agent.resource_manager import system
from rp_agent.resource_manager.system import System
from rp_api.errors import PlatformError

SSH = """#!/bin/sh
for host; do :; done   # the command is the last word
case "$*" in
    *' good hostname') echo good;;
    *' lost hostname') echo 'ssh: connect to host lost port 22: No route to host' >&2; exit 255;;
    *' mute hostname') exit 3;;
    *' slow hostname') exec sleep 60;;
esac
"""


def program(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(text)
    path.chmod(0o755)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(tmp_path))
    for age, name in enumerate(('list.2', 'list.1', 'list.3')):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (0, 1000 - age))
    host = System()
    assert host.newest('~/list.*') == str(tmp_path / 'list.2')
    assert host.newest('~/none*') is None
    assert host.read(str(tmp_path / 'list.1')) == 'list.1'
    with pytest.raises(PlatformError, match='nothing cannot be read: No such file or directory'):
        host.read(str(tmp_path / 'nothing'))


def test_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, 'COMMAND_TIMEOUT', 0.2)
    program(tmp_path, 'qstat', '#!/bin/sh\necho "qstat: Unknown Job Id $2" >&2\nexit 153\n')
    monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
    host = System()
    assert host.run('echo', 'a', 'b') == 'a b\n'
    for command, sentence in ((('qstat', '-f', '7'), '`qstat -f 7` failed with exit code 153: qstat: Unknown Job Id 7'),
                              (('sleep', '60'), '`sleep 60` has not ended after 0.2 seconds'),
                              (('no_such_program',), '`no_such_program` cannot be run: No such file or directory')):
        with pytest.raises(PlatformError, match=sentence):
            host.run(*command)


def test_which_hosts_are_here() -> None:
    host = System()
    name = os.uname().nodename
    assert all(map(host.is_here, ('localhost', name, name.partition('.')[0] + '.some.domain', '127.0.0.1')))
    assert not any(map(host.is_here, ('no-such-host.invalid', '192.0.2.1', '')))


def test_nodes_that_do_not_answer_are_out_of_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, 'ssh', SSH)
    monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(system, 'NODE_TIMEOUT', 1.0)
    assert System().sick(['good', 'lost', 'mute', 'slow']) == {
        'lost': 'ssh: connect to host lost port 22: No route to host', 'mute': 'exit code 3',
        'slow': 'no answer for 1 seconds'}
    assert system.sick([]) == {}


def test_without_ssh_all_are_out_of_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    assert system.sick(['a']) == {'a': 'ssh cannot be run: No such file or directory'}
