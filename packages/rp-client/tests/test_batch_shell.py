"""Running scripts where a batch system is: here, and through programs that take the place of ssh."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leftovers import end_of

from rp_api.errors import PlatformError
from rp_client.launcher.batch import transfer
from rp_client.launcher.batch.leftovers import copy_there, last_lines, place
from rp_client.launcher.batch.shell import Shell, ShellResult, is_remote

SSH = '''\
#!/bin/sh
printf '%s\\n' "$*" >> "$0.log"
'''


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for programs that are found first."""
    directory = tmp_path / 'bin'
    directory.mkdir()
    monkeypatch.setenv('PATH', f'{directory}{os.pathsep}{os.environ["PATH"]}')
    return directory


@pytest.fixture
def here() -> Iterator[Shell]:
    shell = Shell('slurm://localhost/')
    yield shell
    shell.close()


def ssh(path: Path, rest: str) -> None:
    program = path / 'ssh'
    program.write_text(SSH + rest)
    program.chmod(0o755)


@pytest.fixture
def remote(path: Path) -> Iterator[Shell]:
    """The shell of another host, which is this one."""
    ssh(path, 'echo "Welcome to the machine!"\nexec /bin/sh')
    shell = Shell('slurm+ssh://me@host.org:2222/')
    yield shell
    shell.close()


def test_output_and_exit_code(here: Shell) -> None:
    assert here.run('echo out; echo err >&2; exit 3') == ShellResult(3, 'out\nerr\n')
    assert here.run('printf no-newline') == ShellResult(0, 'no-newline')
    assert here.run('') == ShellResult(0, '')
    assert here.run('cat; read x') == ShellResult(1, '')   # there is nothing to read


def test_what_the_login_shell_prints(remote: Shell) -> None:
    assert remote.run('echo out; false') == ShellResult(1, 'out\n')


def test_one_connection(remote: Shell, path: Path) -> None:
    assert [remote.run(f'exit {code}').code for code in (1, 2, 3)] == [1, 2, 3]
    (line,) = (path / 'ssh.log').read_text().splitlines()
    assert line.startswith('-oBatchMode=yes ')
    assert ' -p 2222 me@host.org exec /bin/sh -c ' in line


def test_scripts_do_not_change_the_shell(here: Shell) -> None:
    assert here.run('cd /; X=1; umask 0; trap "" TERM; exec 1>&-').code == 0
    assert here.run('pwd; echo "$X"; umask') == ShellResult(0, f'{os.getcwd()}\n\n{os.umask(os.umask(0o22)):04o}\n')


def test_connection_that_was_lost(path: Path) -> None:
    """The next script gets another one; one that was being run is not run again."""
    ssh(path, 'exec /bin/sh')
    shell = Shell('ssh://host/')
    try:
        first = shell.run('echo $$').output
        with pytest.raises(PlatformError, match='ssh host was lost while a script ran; its output: begun'):
            shell.run('echo begun; kill -9 $$; sleep 10')
        assert shell.run('echo $$').output != first
    finally:
        shell.close()


def test_connection_that_was_cut_while_nothing_ran(path: Path) -> None:
    ssh(path, 'exec /bin/sh')
    shell = Shell('ssh://host/')
    try:
        pid = int(shell.run('echo $$').output)
        os.kill(pid, signal.SIGKILL)
        assert end_of(pid)
        assert shell.run('echo here') == ShellResult(0, 'here\n')
    finally:
        shell.close()


def test_script_that_is_none(here: Shell) -> None:
    with pytest.raises(PlatformError, match=r'the shell of this host .*yntax error'):
        here.run('if')
    assert here.run('echo here').output == 'here\n'


@pytest.mark.parametrize(('program', 'sentence'), [
    ('echo "Permission denied (publickey)." >&2; exit 255', r'ssh host failed: Permission denied \(publickey\)\.'),
    ('echo "Your password has expired."; exit 1', 'did not run a script; its output: Your password has expired'),
    ('exit 7', 'its output: none, exit code 7'),
])
def test_host_that_does_not_let_us_in(path: Path, program: str, sentence: str) -> None:
    ssh(path, program)
    shell = Shell('ssh://host/')
    try:
        with pytest.raises(PlatformError, match=sentence):
            shell.run('true')
    finally:
        shell.close()


def test_script_that_hangs(here: Shell, tmp_path: Path) -> None:
    """It is ended, with all that it has started."""
    here.run('true')   # it is there, so that a busy machine does not count
    with pytest.raises(PlatformError, match='the shell of this host did not answer within 2 s'):
        here.run(f'sleep 1000 & echo $! > {tmp_path}/pid; wait', timeout=2)
    assert end_of(int((tmp_path / 'pid').read_text()))


def test_ssh_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PATH', '/nowhere')
    with pytest.raises(PlatformError, match='gsissh is needed to reach host, and it is not installed here'):
        Shell('slurm+gsissh://host/').run('true')


@pytest.mark.parametrize(('url', 'remote'), [
    ('slurm://localhost/', False), ('fork://localhost/', False), ('ssh://localhost/', True), ('gsissh://h/', True),
    ('slurm+ssh://h/', True), ('pbspro+gsissh://h/', True), ('', False)])
def test_is_remote(url: str, remote: bool) -> None:
    assert is_remote(url) is remote


def test_files_are_private(here: Shell, tmp_path: Path) -> None:
    box = tmp_path / "the pilot's" / 'box'
    files = {'a': b'text\n', 'b c': bytes(range(256)) * 100, 'empty': b''}
    assert here.run(place(here, [{'sandbox': str(box), 'files': files}])).code == 0
    assert {path.name: path.read_bytes() for path in box.iterdir()} == files
    assert {path.stat().st_mode & 0o777 for path in box.iterdir()} == {0o600}
    assert box.stat().st_mode & 0o777 == 0o700


def test_sandbox_cannot_be_made(here: Shell, tmp_path: Path) -> None:
    (tmp_path / 'file').touch()
    result = here.run(place(here, [{'sandbox': f'{tmp_path}/file/box', 'files': {'a': b''}}]))
    assert result.code == 1
    assert 'Not a directory' in result.output


def test_last_lines(here: Shell, tmp_path: Path) -> None:
    first, second = tmp_path / 'one', tmp_path / 'two'
    for box in first, second:
        box.mkdir()
    (first / 'bootstrap_0.out').write_text('x' * 5000 + 'end')
    (first / 'agent_0.err').write_text('')
    (second / 'bootstrap_0.failed').write_text('{}\n')
    found = last_lines(here, [str(first), str(second), f'{tmp_path}/none'])
    assert found == {str(first): {'bootstrap_0.out': 'x' * 2045 + 'end'}, str(second): {'bootstrap_0.failed': '{}\n'}}


def test_copies_go_to_another_host_once(remote: Shell, path: Path, tmp_path: Path) -> None:
    ssh(path, 'for last; do :; done; eval "$last"')   # as a login shell does
    source = tmp_path / 'source'
    source.write_bytes(bytes(range(256)) * 4096)
    jobs: list[dict[str, Any]] = [{'sandbox': f"{tmp_path}/it's {number}", 'copies': {'a b': str(source)}}
                                  for number in range(2)]
    for job in jobs:
        Path(job['sandbox']).mkdir()
    copy_there(remote, jobs, lambda: None)
    assert {Path(job['sandbox'], 'a b').read_bytes() for job in jobs} == {source.read_bytes()}
    said = (path / 'ssh.log').read_text().splitlines()
    assert ['cat' in line for line in said].count(True) == 1


def test_what_does_not_take_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, 'CHECK_INTERVAL_S', 0.01)
    source = tmp_path / 'source'
    source.write_bytes(bytes(1 << 20))
    with pytest.raises(PlatformError, match='it could not be sent: no room'):
        transfer.send(['/bin/sh', '-c', 'echo no room; exit 1'], source, 'it could not be sent')
    seen: list[None] = []
    transfer.send(['/bin/sh', '-c', 'for i in 1 2 3 4 5; do head -c 100000 >/dev/null; sleep 0.03; done'], source, '',
                  lambda: seen.append(None))
    assert seen
    monkeypatch.setattr(transfer, 'SILENCE', 0.05)
    with pytest.raises(PlatformError, match=r'it could not be sent: no progress for 0\.05 s'):
        transfer.send(['sleep', '1000'], source, 'it could not be sent')


def test_a_transfer_without_an_exit_code_is_no_success(tmp_path: Path) -> None:
    """As in an application that ignores SIGCHLD: files may be missing."""
    source = tmp_path / 'source'
    source.write_bytes(b'abc')
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(PlatformError, match=r'sent: the exit code of false is unknown, .* SIGCHLD is ignored'):
            transfer.send(['false'], source, 'it could not be sent')
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_beginning_of_a_file_is_left_out(tmp_path: Path) -> None:
    source, target = tmp_path / 'source', tmp_path / 'target'
    source.write_bytes(b'abcdef')
    transfer.send(['/bin/sh', '-c', f'cat > {target}'], source, 'it could not be sent', skip=2)
    assert target.read_bytes() == b'cdef'


def test_an_interrupted_transfer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, 'CHECK_INTERVAL_S', 0.01)
    source, pid = tmp_path / 'source', tmp_path / 'pid'
    source.write_bytes(bytes(1 << 20))

    def interrupt() -> None:
        raise KeyboardInterrupt

    script = f'echo $$ >{pid}; head -c 100000 >/dev/null; exec sleep 1000'
    with pytest.raises(KeyboardInterrupt):
        transfer.send(['/bin/sh', '-c', script], source, 'it could not be sent', interrupt)
    assert not Path('/proc', pid.read_text().strip()).exists()
