"""Stage 1 of the bootstrap: environments, the script of stage 2, checks, and the agent as a child."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rp_agent.bootstrap import environment, stage_1, stage_2
from rp_agent.bootstrap.child import FAILED, BootstrapError, BootstrapProcess, report
from rp_agent.bootstrap.stage_1 import through_tunnel
from rp_api.system.signals import WARNINGS


def test_environment_of_a_process() -> None:
    with subprocess.Popen(['/bin/cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env={b'A': b'1=2\n3', b'B\xff': b'\xfe', b'EMPTY': b''}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'x')
        process.stdin.flush()
        process.stdout.read(1)   # from now on it is what it was to become
        found = environment.of_process(process.pid)
    assert found == {'A': '1=2\n3', 'B\udcff': '\udcfe', 'EMPTY': ''}


def test_without_virtualenv() -> None:
    """As `deactivate` leaves it."""
    plain = {'PATH': '/usr/bin:/bin', 'HOME': '/home/me'}
    active = plain | {'VIRTUAL_ENV': '/ve', 'VIRTUAL_ENV_PROMPT': '(ve)', 'PATH': '/x:/ve/bin:/bin',
                      '_OLD_VIRTUAL_PS1': '$'}
    assert environment.without_virtualenv(plain) == plain
    assert environment.without_virtualenv(active) == plain | {'PATH': '/x:/bin'}


def test_what_the_agent_has_and_tasks_have_not() -> None:
    own = {'PATH': '/ve/bin:/bin', 'HOME': '/me', 'RP_TUNNEL': 'x', 'PWD': '/x', 'PYTHONPATH': '/lib'}
    assert environment.additions({'PATH': '/bin', 'HOME': '/me'}, own) == {'PATH': '/ve/bin:/bin', 'PYTHONPATH': '/lib'}
    assert environment.additions(None, own) == {}


def test_script(tmp_path: Path) -> None:
    """Whoever starts through it has the environment, but stays what and where it is."""
    sandbox = tmp_path / "it's here"
    sandbox.mkdir()
    environ = {'A': "it's $HOME\n`id`", 'B\udcff': 'x', 'C': '\udcfe', 'SLURM_PROCID': '0', 'SLURM_JOB_ID': '7',
               'PWD': '/x', 'HOSTNAME': 'first', 'RP_PILOT_SANDBOX': '/x', 'PYTHONPATH': os.pathsep.join(sys.path)}
    commands = ['FIRST="done"', 'export FIRST', 'test -z "${BASH_VERSION:-}" || [[ $FIRST == d* ]] || exit 3']
    path = stage_2.write(str(sandbox), environ, commands)
    assert os.stat(path).st_mode & 0o777 == 0o700
    text = Path(path).read_bytes().decode(errors='surrogateescape')
    text = text.replace('from rp_agent.cli import main; gc.freeze(); gc.enable(); sys.exit(main())',
                        'print(sys.argv[1:], dict(os.environ))')
    Path(path).write_bytes(text.encode(errors='surrogateescape'))
    done = subprocess.run(['/bin/sh', path, 'agent_0'], capture_output=True, check=True, cwd='/',
                          env={'SLURM_PROCID': '3', 'HOSTNAME': 'second', 'PATH': '/bin'})
    said = done.stdout.decode(errors='surrogateescape')
    assert said.startswith(f'{[f"{sandbox}/agent_0.cfg"]!r} ')
    found = ast.literal_eval(said[said.index('{'):])
    assert (found['A'], found['SLURM_JOB_ID'], found['FIRST']) == (environ['A'], '7', 'done')
    assert (found['SLURM_PROCID'], found['HOSTNAME']) == ('3', 'second')
    assert 'RP_PILOT_SANDBOX' not in found


@pytest.mark.parametrize(('submitted', 'files', 'words'), [
    (1e9 + 86400, 1e9, '24 hours behind that of the client'),
    (0, 1e9 + 7 * 3600, '7 hours behind that of the file system'),
    (0, 1e9 - 100 * 3600, '100 hours ahead of that of the file system')])
def test_wrong_clock(submitted: float, files: float, words: str) -> None:
    with pytest.raises(BootstrapError, match=f'the clock of {os.uname().nodename} is {words}') as error:
        stage_1.check_clock(submitted, 1e9, files)
    assert error.value.code == stage_1.CLOCK_ERROR
    stage_1.check_clock(1e9 - 30 * 86400, 1e9, 1e9 - 3)   # a pilot may have waited for weeks


@pytest.mark.parametrize('greeting', [b'\xff', b''])
def test_hub(greeting: bytes, tmp_path: Path) -> None:
    """Something listens; a hub greets whoever connects."""
    with socket.create_server(('127.0.0.1', 0)) as server:
        def serve() -> None:
            connection, _ = server.accept()
            connection.sendall(greeting)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        access = {'backend': 'hub', 'endpoint': f'tcp://127.0.0.1:{server.getsockname()[1]}'}
        if greeting:
            stage_1.hub_answers(access)
        else:
            with pytest.raises(BootstrapError, match='the connection was closed at once'):
                stage_1.hub_answers(access)
        thread.join()


def test_hub_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall that drops what comes, or a tunnel to such a host."""
    monkeypatch.setattr(stage_1, 'CONNECT_TIMEOUT', 0.05)
    with socket.create_server(('127.0.0.1', 0)) as server:
        endpoint = f'tcp://127.0.0.1:{server.getsockname()[1]}'
        with pytest.raises(BootstrapError, match=f'at {endpoint}: no answer within') as error:
            stage_1.hub_answers({'backend': 'hub', 'endpoint': endpoint})
    assert error.value.code == stage_1.NETWORK_ERROR


@pytest.mark.parametrize('access', [{'backend': 'mongodb', 'endpoint': 'mongodb://nowhere'}, {'backend': 'pigeons'}])
def test_other_backends_are_left_to_the_agent(access: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    monkeypatch.setattr(stage_1, '_connected', lambda *where: tried.append(where))
    stage_1.hub_answers(access)
    assert tried == []


def test_hub_on_this_host_is_gone(tmp_path: Path) -> None:
    with pytest.raises(BootstrapError, match='No such file or directory'):
        stage_1.hub_answers({'backend': 'hub', 'endpoint': f'ipc://{tmp_path}/s'})


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(script: str) -> int:
    """Run a child of stage 1, in a process of its own, whose signals and children are none of ours."""
    before = {number: signal.getsignal(number) for number in (
        signal.SIGTERM, signal.SIGINT, *WARNINGS)}
    try:
        with BootstrapProcess() as child:
            child.start(['/bin/sh', '-c', script], 'agent_0')
            return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_child_that_says_nothing(child: Path) -> None:
    """It leaves no file."""
    assert run('true') == 0
    assert os.listdir(child) == []


def test_child_with_output(child: Path) -> None:
    """What it has written is there, also when somebody else still has its output."""
    assert run('echo out; echo err >&2; sleep 0.3 & echo more') == 0
    assert (child / 'agent_0.out').read_text() == 'out\nmore\n'
    assert (child / 'agent_0.err').read_text() == 'err\n'


def test_child_that_fails(child: Path) -> None:
    with pytest.raises(BootstrapError, match=r'^agent_0 ended with exit code 3: no hub$') as error:
        run('echo begun >&2; echo "rp-agent: no hub" >&2; exit 3')
    assert (error.value.code, error.value.file) == (FAILED, f'{child}/agent_0.err')
    assert error.value.tail == 'begun\nrp-agent: no hub'


def test_child_that_is_killed(child: Path) -> None:
    with pytest.raises(BootstrapError, match=r'^agent_0 was killed by signal 9 \(SIGKILL\)$') as error:
        run('kill -9 $$')
    assert error.value.file == f'{child}/agent_0.log'


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_child_is_told_to_end(child: Path, number: signal.Signals) -> None:
    """It ends in its own way."""
    script = f'trap "echo told; exit 0" TERM; kill -{number.value} $PPID; while :; do sleep 0.01; done'
    assert run(script) == 0
    assert (child / 'agent_0.out').read_text() == 'told\n'


@pytest.mark.parametrize('number', sorted(WARNINGS))
def test_child_is_warned(child: Path, number: signal.Signals) -> None:
    """It gets the signal itself, and has ignored it before it could handle it."""
    program = ('import os, signal; number = int(os.environ["NUMBER"]); os.kill(os.getpid(), number); '
               'signal.signal(number, lambda *_: os._exit(0)); os.kill(os.getppid(), number); signal.pause()')
    assert run(f"NUMBER={number.value} exec {sys.executable} -c '{program}'") == 0


def test_report(child: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(1, BootstrapError(22, 'no way', '/x', 'a\nb'))
    assert capsys.readouterr().err == 'stage 1: no way\n'
    assert json.loads((child / 'bootstrap_0.failed').read_text()) == {
        'stage': 1, 'exit_code': 22, 'sentence': 'no way', 'file': '/x', 'tail': 'a\nb'}
    assert os.listdir(child) == ['bootstrap_0.failed']


def test_a_hub_behind_a_tunnel() -> None:
    access = {'backend': 'hub', 'endpoint': 'tcp://10.0.0.1:4711', 'key': 'k'}
    assert through_tunnel(access, '/tmp/t/hub.sock') == access | {'endpoint': 'ipc:///tmp/t/hub.sock'}


@pytest.mark.parametrize(('url', 'local'), [
    ('mongodb://db', 'mongodb://%2Ft%2Fhub.sock/?directConnection=true'),
    ('mongodb://me:p%40ss@db:1/rp', 'mongodb://me:p%40ss@%2Ft%2Fhub.sock/rp?directConnection=true'),
    ('mongodb://[::1]/rp?w=1&replicaSet=rs0&x=y', 'mongodb://%2Ft%2Fhub.sock/rp?w=1&x=y&directConnection=true')])
def test_a_database_behind_a_tunnel(url: str, local: str) -> None:
    """It may tell of other members of its replica set, which are not reached."""
    assert through_tunnel({'backend': 'mongodb', 'url': url}, '/t/hub.sock')['url'] == local
