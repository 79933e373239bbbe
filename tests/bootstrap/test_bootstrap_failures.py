"""The ways in which a bootstrap can go wrong: each ends with the right sentence, and nothing is left running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from quotas import use_up, with_quota

from bootstrap.jobs_of_pilots import Job, a_platform, environment, eventually, program, tools
from rp_client.bootstrap import read_failure

NODE = os.uname().nodename


@pytest.fixture
def hub() -> Iterator[int]:
    """The port of something that listens, and greets as a hub does."""
    with socket.create_server(('127.0.0.1', 0)) as server:
        def greet() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    connection.sendall(b'\xff')
                    connection.close()
            except OSError:
                return

        thread = threading.Thread(target=greet)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KB and 64 files."""
    path = tmp_path / 'disk'
    path.mkdir()
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=256k,nr_inodes=64,mode=700', 'none', path], check=True)
    yield path
    subprocess.run(['umount', '-l', path], check=True)


# Python

def test_no_python(job: Job) -> None:
    job.environ['PATH'] = tools(job.base / 'bin')
    failure = job.fails()
    assert failure.sentence.startswith(f'there is no Python on {NODE}: python3 is not found')


def test_the_platforms_python_is_missing(job: Job) -> None:
    failure = job.fails(python_interpreter='/opt/python/3.12/bin/python3')
    assert f'there is no Python on {NODE}: /opt/python/3.12/bin/python3 is not found' in failure.sentence


def test_old_python(job: Job) -> None:
    job.environ['PATH'] = tools(job.base / 'bin')
    old = program(job.base / 'bin' / 'python3', 'echo "Python 3.6"')
    assert job.fails().sentence == (
        f'the agent needs Python 3.10 or newer, and {NODE} has none; {old}: Python 3.6')


def test_broken_python(job: Job) -> None:
    job.environ['PATH'] = tools(job.base / 'bin')
    program(job.base / 'bin' / 'python3',
            'echo "python3: error while loading shared libraries: libpython3.so" >&2; exit 127')
    assert 'it ends with exit code 127: python3: error while loading shared libraries' in job.fails().sentence


# sandbox and files

def sandbox_that_others_could_change(job: Job) -> None:
    job.bring(a_platform())
    job.change('pilot.sh', 'rp_complete=yes', 'touch ran; rp_complete=yes')
    before = sorted(os.listdir(job.sandbox))
    job.sandbox.chmod(0o775)
    assert job.run() == 10
    assert job.err == (f'bootstrap_0.sh: the sandbox {job.sandbox} is not ours alone: others may write to it '
                       '(mode drwxrwxr-x)\n')
    assert sorted(os.listdir(job.sandbox)) == before


def test_sandbox_that_others_could_change(job: Job) -> None:
    """Nothing of it is run, and nothing is written there."""
    sandbox_that_others_could_change(job)


def test_sandbox_that_others_could_change_in_other_shells(rare_job: Job) -> None:
    sandbox_that_others_could_change(rare_job)


def test_sandbox_is_gone(job: Job) -> None:
    job.bring(a_platform())
    script = job.sandbox / 'bootstrap_0.sh'
    job.command[-1] = str(script.rename(job.base / 'bootstrap_0.sh'))
    (job.base / 'bootstrap_0.sh').rename(job.base / 'elsewhere.sh')
    job.command[-1:] = ['-c', f'. {job.base}/elsewhere.sh', f'{job.base}/gone/bootstrap_0.sh']
    assert job.run() == 10
    assert f'the sandbox {job.base}/gone cannot be entered' in job.err


def test_read_only_sandbox(job: Job, small_disk: Path) -> None:
    job.bring(a_platform())
    subprocess.run(['mount', '--bind', job.sandbox, small_disk], check=True)
    subprocess.run(['mount', '-o', 'remount,ro,bind', small_disk], check=True)
    try:
        job.command[-1] = f'{small_disk}/bootstrap_0.sh'
        assert job.run() == 10
    finally:
        subprocess.run(['umount', small_disk], check=True)
    assert f'the sandbox {small_disk} cannot be written on {NODE}: Read-only file system' in job.err


@pytest.mark.parametrize('what', ['bytes', 'files'])
def test_full_sandbox(job: Job, small_disk: Path, what: str) -> None:
    job.sandbox = small_disk
    job.bring(a_platform())
    with pytest.raises(OSError, match='No space'):   # noqa: PT012
        if what == 'bytes':
            with open(small_disk / 'filler', 'wb', buffering=0) as file:
                while file.write(bytes(1 << 10)):
                    pass
        for number in range(1000):
            (small_disk / f'{number}').touch()
    job.command[-1] = f'{small_disk}/bootstrap_0.sh'
    assert job.run() == 10
    assert f'the sandbox {small_disk} cannot be written on {NODE}: No space left on device' in job.err


def test_sandbox_over_quota(job: Job, tmp_path: Path) -> None:
    with with_quota(tmp_path) as directory:
        job.sandbox = directory
        job.bring(a_platform())
        use_up(directory)
        job.command[-1] = f'{directory}/bootstrap_0.sh'
        assert job.run() == 10
    assert f'the sandbox {directory} cannot be written on {NODE}: Disk quota exceeded' in job.err


def test_no_settings(job: Job) -> None:
    job.bring(a_platform())
    (job.sandbox / 'pilot.sh').unlink()
    assert job.fails().sentence == f'{job.sandbox}/pilot.sh, which the client writes, is not there'


@pytest.mark.parametrize('rest', [20, -20])
def test_settings_are_cut_off(job: Job, rest: int) -> None:
    """The disk was full, or the quota used up, when the files came."""
    job.bring(a_platform())
    path = job.sandbox / 'pilot.sh'
    path.write_text(path.read_text()[:rest])
    assert job.fails().sentence == f'{job.sandbox}/pilot.sh is cut off: was the disk full, or over quota?'


@pytest.mark.parametrize('end', ['\n\nrp_main\n', '\nrp_fail() {', '    exit "$rp_code"\n}'])
def test_script_is_cut_off(job: Job, end: str) -> None:
    """Between functions, and in the middle of one."""
    job.bring(a_platform())
    script = job.sandbox / 'bootstrap_0.sh'
    text = script.read_text()
    script.write_text(text[:text.index(end) + (0 if 'main' in end else 5)])
    assert job.fails().sentence == 'bootstrap_0.sh is cut off: was the disk full, or over quota?'


def test_configuration_is_damaged(job: Job, installed: Path) -> None:
    job.bring(a_platform(virtenv_mode='use', virtenv=str(installed)))
    path = job.sandbox / 'agent_0.cfg'
    path.write_text(path.read_text()[:100])
    failure = job.fails()
    assert failure.stage == 1
    assert failure.sentence.startswith(f'{path}, which the client writes, cannot be used: JSONDecodeError')


def test_configuration_is_empty(job: Job) -> None:
    job.bring(a_platform())
    (job.sandbox / 'agent_0.cfg').write_text('')
    assert job.fails().sentence == f'{job.sandbox}/agent_0.cfg, which the client writes, is not there or empty'


# a job that is started again

@pytest.mark.parametrize(('told', 'times'), [({}, ''), ({'SLURM_RESTART_COUNT': '2'}, ' (restart 2)')])
def test_started_again_after_the_agent_has_ended(job: Job, told: dict[str, str], times: str) -> None:
    job.bring(a_platform())
    job.environ |= told
    (job.sandbox / 'agent_0.cfg').unlink()
    (job.sandbox / 'bootstrap_2.sh').touch()
    failure = job.fails()
    assert (failure.exit_code, failure.sentence) == (
        24, f'the batch system has started the job of pilot.0000 again{times}, after its agent had ended: the pilot is '
        'over')


@pytest.mark.parametrize(('values', 'words'), [
    ({}, 'a pilot continues only if its description has requeue=True'),
    ({'requeue': True, 'partitions': [1]}, 'a pilot with partitions cannot continue')])
def test_started_again_after_the_agent_was_killed(job: Job, installed: Path, values: dict[str, object],
                                                  words: str) -> None:
    job.config |= {'run': {'host': 'n7', 'time': 1.0}, **values}
    job.bring(a_platform(virtenv_mode='use', virtenv=str(installed)))
    failure = job.fails()
    assert (failure.stage, failure.exit_code) == (1, 24)
    assert failure.sentence == ('the batch system has started the job of pilot.0000 again, after it had run on n7: '
                                + words)


# the platform's commands

def test_command_fails(job: Job) -> None:
    failure = job.fails(pre_bootstrap_0=['true', 'echo "it is \\"broken\\"	so"; ls /nowhere/at/all'])
    assert failure.sentence.startswith('a command of pre_bootstrap_0 failed with exit code 2: echo')
    assert failure.file == f'{job.sandbox}/bootstrap_0.log'
    assert 'it is "broken"\tso\n' in failure.tail
    assert "'/nowhere/at/all': No such file or directory" in failure.tail


@pytest.mark.parametrize('line', ['. /nowhere/setup.sh', 'exit 3', 'if then ('])
def test_command_ends_the_shell(job: Job, line: str) -> None:
    failure = job.fails(pre_bootstrap_0=[line])
    assert line in failure.sentence
    assert failure.exit_code == 18


def test_command_asks(job: Job) -> None:
    failure = job.fails(pre_bootstrap_0=['echo "Password:"; read answer && echo "$answer"'])
    assert 'failed with exit code 1: echo "Password:"' in failure.sentence
    assert failure.tail == 'Password:'


@pytest.mark.parametrize('line', ['sleep 1000', 'x=$(sleep 1000; echo x)', 'sleep 1000 | cat'])
def test_command_hangs(job: Job, line: str) -> None:
    job.bring(a_platform(pre_bootstrap_0=[line]))
    job.change('pilot.sh', 'rp_patience=600', 'rp_patience=1')
    assert job.fails().sentence == f'a command of pre_bootstrap_0 took longer than 1 s: {line}'


def test_shell_itself_hangs(job: Job) -> None:
    job.bring(a_platform(pre_bootstrap_0=['mkfifo pipe; read answer < pipe']))
    job.change('pilot.sh', 'rp_patience=600', 'rp_patience=1')
    failure = read_failure((job.run(), (job.sandbox / 'bootstrap_0.failed').read_bytes())[1])
    assert failure is not None
    assert failure.sentence.startswith('commands of pre_bootstrap_0 took longer than 1 s, and cannot be ended')


def test_no_module_command(job: Job) -> None:
    failure = job.fails(pre_bootstrap_0=['module load python/3.11'])
    assert failure.sentence == (
        f'there is no module command on {NODE}, which pre_bootstrap_0 uses: module load python/3.11')


@pytest.mark.parametrize('code', [0, 1])
def test_missing_module(job: Job, code: int) -> None:
    """Some versions of module end with 0 whatever happens."""
    words = "ERROR: Unable to locate a modulefile for 'python/4.0'"
    program(job.base / 'modules' / 'init' / 'sh', f'module() {{ echo "{words}" >&2; return {code}; }}')
    job.environ['MODULESHOME'] = str(job.base / 'modules')
    failure = job.fails(pre_bootstrap_0=['module load python/4.0'])
    assert failure.sentence == 'a command of pre_bootstrap_0 failed with exit code 1: module load python/4.0'
    assert failure.tail == words


# virtual environments that are only used

def test_virtenv_is_missing(job: Job) -> None:
    job.environ['WORK'] = str(job.base)
    failure = job.fails(virtenv_mode='use', virtenv='$WORK/ve')
    assert failure.sentence == f'the virtual environment {job.base}/ve (mode use) is not there on {NODE}'


def test_variable_in_path_is_not_set(job: Job) -> None:
    failure = job.fails(virtenv_mode='use', virtenv='$WORK/ve')
    assert failure.sentence == (
        f"the path $WORK/ve in the platform's definition has the variable WORK, which is not set on {NODE}")


def test_clients_virtenv_is_not_there(job: Job) -> None:
    job.client = job.client._replace(prefix='/home/client/ve')
    failure = job.fails(virtenv_mode='local')
    assert failure.sentence == f'the virtual environment /home/client/ve (mode local) is not there on {NODE}'


def test_broken_virtenv(job: Job) -> None:
    broken = environment(job.base / 've', [])
    (broken / 'bin' / 'python').unlink()
    (broken / 'bin' / 'python').symlink_to('/opt/python/3.9/bin/python3')
    failure = job.fails(virtenv_mode='use', virtenv=str(broken))
    assert failure.sentence == (
        f'the virtual environment {broken} is broken: {broken}/bin/python is not there, or its target is gone')


def test_virtenv_without_agent(job: Job, empty: Path) -> None:
    failure = job.fails(virtenv_mode='use', virtenv=str(empty))
    assert failure.sentence == (
        "rp-agent cannot be imported in the Python of the pilot: No module named 'rp_agent'; install it there: "
        f'{empty}/bin/python -m pip install rp-agent')


# tunnel, network, clock

def test_no_ssh_for_the_tunnel(job: Job) -> None:
    job.environ['PATH'] = tools(job.base / 'bin')
    failure = job.fails(forward_tunnel_endpoint='login1')
    assert failure.sentence == f'there is no ssh on {NODE} to make a tunnel with'


def test_tunnel_fails(job: Job) -> None:
    program(job.base / 'bin' / 'ssh', 'echo "ssh: Could not resolve hostname login1" >&2; exit 255')
    job.environ['PATH'] = f'{job.base}/bin:/usr/bin:/bin'
    failure = job.fails(forward_tunnel_endpoint='login1')
    assert failure.sentence == (f'no tunnel to 127.0.0.1:1 can be made through login1 from {NODE}: '
                                'ssh: Could not resolve hostname login1')


def test_hub_is_not_reached(job: Job, installed: Path) -> None:
    failure = job.fails(virtenv_mode='use', virtenv=str(installed))
    assert failure.sentence.startswith(f'{NODE} does not reach the hub of the session at tcp://127.0.0.1:1: Connection '
                                       'refused. It has to listen at an address that the nodes reach')


def test_clock_of_a_day_ago(job: Job, installed: Path) -> None:
    job.client = job.client._replace(now=time.time() + 86400)
    failure = job.fails(virtenv_mode='use', virtenv=str(installed))
    assert failure.sentence == f'the clock of {NODE} is 24 hours behind that of the client: one of them has to be set'


# the agent, and the batch system

def test_agent_fails(job: Job, installed: Path, hub: int) -> None:
    """Its own words are part of the sentence."""
    job.config['coordination'] = {'backend': 'pigeons'}
    failure = job.fails(virtenv_mode='use', virtenv=str(installed))
    assert failure.stage == 1
    assert failure.exit_code == 30
    assert failure.sentence.startswith('agent_0 ended with exit code 1')
    assert failure.file == f'{job.sandbox}/agent_0.err'


def test_told_to_end_while_preparing(job: Job) -> None:
    process = job.start(pre_bootstrap_0=['echo x > begun; until [ -e told ]; do sleep 0.1; done'])
    eventually((job.sandbox / 'begun').exists)
    process.send_signal(signal.SIGTERM)
    (job.sandbox / 'told').touch()
    failure = job.failure(job.wait())
    assert failure.exit_code == 143
    assert failure.sentence.startswith('the job was told to end (SIGTERM) while running command 1 of pre_bootstrap_0')
