"""What only the executor with a persistent shell does: its shell, and what the shell reports."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from executor_support import SHELLS, Harness, a_family, harnesses, sh, text, use_as_sh, wait_for_end
from leftovers import end_of

from rp_agent.executor import shell as shell_loop
from rp_agent.executor.popen import component
from rp_agent.executor.shell import ShellExecutor
from rp_api import states
from rp_api.errors import PlatformError
from rp_api.system import processes
from rp_api.system.processes import read_process


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
          monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that is /bin/sh."""
    use_as_sh(request.param, tmp_path_factory.mktemp('bin'), monkeypatch)


@pytest.fixture
def make(shell: None, tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    with harnesses(tmp_path, ShellExecutor) as made:
        yield made


@pytest.fixture
def harness(make: Callable[..., Harness]) -> Harness:
    return make()


def shell_of(harness: Harness) -> int:
    """The process of the shell that runs."""
    pid: int = harness.executor._reaper.launched.shell.pid
    return pid


def test_one_shell_runs_all_tasks(harness: Harness) -> None:
    """The parent of a task's process is the shell itself."""
    tasks = [harness.task(f'task.{index}', **sh(r'echo \$PPID')) for index in range(5)]
    harness.run(*tasks)
    assert {text(task, f'{task.uid}.out') for task in tasks} == {f'{shell_of(harness)}\n'}


def test_what_is_left_of_a_process_that_the_shell_has_reaped_before_it_was_watched(
        harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_late(pid: int) -> None:
        assert end_of(pid)

    monkeypatch.setattr(processes, 'pidfd_open', too_late)
    task = harness.run_one(**sh(r'sleep 1000 & echo \$!'))
    assert task.target_state == states.DONE
    wait_for_end(int(text(task, 'task.000000.out')))


def test_codes_of_scripts_are_those_of_a_shell(harness: Harness) -> None:
    task = harness.run_one(pre_exec=['ulimit -c 0'], **sh(r'kill -SEGV \$\$'))
    assert task.exception_detail == 'killed by signal 11 (SIGSEGV)'
    assert task.error == {'kind': 'signal', 'signal': 11, 'sentence': task.exception_detail}


def test_arguments_that_are_too_long_are_named_in_the_output(harness: Harness) -> None:
    task = harness.run_one(arguments=['x' * 200_000])
    assert 'Argument list too long' in text(task, 'task.000000.err')


@pytest.mark.parametrize(('executable', 'detail'), [
    ('./exits', 'exit code: 127 (the shell did not find a command)'),
    ('./loose', 'exit code: 127 (the shell did not find a command)'),
    ('./large', 'exit code: 126 (the shell could not execute a command)'),
])
def test_codes_of_programs_are_those_of_a_shell(harness: Harness, executable: str, detail: str) -> None:
    task = harness.task(executable=executable, arguments=['x' * (3_000_000 if executable == './large' else 1)])
    Path(task.sandbox).mkdir()
    for name, line in (('exits', '#!/bin/sh\nexit 127\n'), ('loose', '#!/no/such/interpreter\n'), ('large', '')):
        Path(task.sandbox, name).write_text(line)
        Path(task.sandbox, name).chmod(0o755)
    harness.run(task)
    assert task.exception_detail is not None
    assert task.exception_detail.startswith(detail)
    assert (task.error or {})['kind'] == 'launch'


@pytest.mark.parametrize('part', ['cwd', 'fds'])
def test_a_process_that_the_shell_cannot_prepare(harness: Harness, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Its sandbox has vanished, or its descriptors cannot be opened."""
    start = shell_loop.start_text
    odd = {'cwd': b'/no/such/directory', 'fds': (9999, 9999)}
    monkeypatch.setattr(shell_loop, 'start_text', lambda argv, env, cwd, fds, *rest: start(
        argv, env, **{'cwd': cwd, 'fds': fds, part: odd[part]}, cpus=rest[0], memory=rest[1]))
    task = harness.run_one()
    assert task.target_state == states.FAILED
    assert str(task.exception_detail).startswith(
        f'the shell could not prepare the task (sandbox, output files), see {harness.context.own_sandbox}/'
        'agent_executing.0000.sh.err, which ends with:\n')
    assert ('/no/such/directory' if part == 'cwd' else 'fd/9999: ') in str(task.exception_detail)


def test_processes_that_cannot_be_watched_are_ended(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(pid: int) -> int:
        raise OSError(errno.EMFILE, 'Too many open files')

    monkeypatch.setattr(component, 'SHORTAGE_LIMIT', 0)
    monkeypatch.setattr(processes, 'pidfd_open', full)
    task = harness.run_one(executable='sleep', arguments=['1000'])
    assert task.target_state == states.FAILED
    assert task.exception_detail == 'Too many open files (for 0 s, with no other task running)'


def test_the_shell_is_killed(harness: Harness) -> None:
    """Its tasks fail and end, those that wait run with a new one."""
    task = a_family(harness)
    shells: list[int] = []

    def kill() -> None:
        shells.append(shell_of(harness))
        os.kill(shell_of(harness), signal.SIGKILL)

    harness.when_file(Path(task.sandbox, 'ready'), kill)
    harness.run(task)
    assert (task.target_state, task.exit_code) == (states.FAILED, -signal.SIGKILL)
    assert task.exception_detail == f'the shell that ran the task (process {shells[0]}) has ended with signal 9'
    for pid in text(task, 'pids').split():
        wait_for_end(int(pid))
    assert harness.run_one(uid='task.1').target_state == states.DONE
    assert shell_of(harness) != shells[0]


def test_the_shell_is_killed_while_it_starts_tasks(harness: Harness) -> None:
    """Each task either has run, or fails with the reason; none is lost."""
    tasks = [harness.task(f'task.{index:06d}', executable='sleep', arguments=['1000' if index < 70 else '0'])
             for index in range(100)]
    harness.when(lambda: sum(bool(run.leaders) for run in harness.executor._reaper.running.values()) > 20,
                 lambda: os.kill(shell_of(harness), signal.SIGKILL))
    harness.on_output = lambda ended: harness.executor.cancel([task.uid for task in tasks[:70]])
    harness.run(*tasks)
    for task in tasks:
        assert task.target_state in (states.FAILED, states.CANCELED) or task.exit_code == 0
    assert any(task.target_state == states.FAILED for task in tasks)
    assert all('has ended with signal 9' in str(task.exception_detail)
               for task in tasks if task.target_state == states.FAILED)


def test_the_shell_is_killed_before_a_process_knows_its_task(make: Callable[..., Harness], tmp_path: Path) -> None:
    """One that is between its session of its own and the wish to end with the shell."""
    slow = tmp_path / 'bin' / 'setpriv'
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 1000\n')
    slow.chmod(0o755)
    harness = make(PATH=f'{slow.parent}:/usr/bin:/bin')
    task = harness.task()
    harness.when_file(tmp_path / 'pid', lambda: os.kill(shell_of(harness), signal.SIGKILL))
    harness.run(task)
    assert task.target_state == states.FAILED
    wait_for_end(int((tmp_path / 'pid').read_text()))


def test_a_cancelled_task_stays_one_when_the_shell_dies(harness: Harness) -> None:
    task = harness.task(**sh("trap '' TERM; echo x >ready; while :; do sleep 1000; done"))

    def both() -> None:
        harness.executor.cancel([task.uid])
        os.kill(shell_of(harness), signal.SIGKILL)

    harness.when_file(Path(task.sandbox, 'ready'), both)
    harness.run(task)
    assert task.target_state == states.CANCELED


def test_a_silent_shell_is_killed(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_loop, 'SHELL_TIMEOUT', 0.5)
    task = harness.task(**sh('echo >ready; read x <go'))
    Path(task.sandbox).mkdir()
    os.mkfifo(f'{task.sandbox}/go')

    def stop() -> None:
        os.kill(shell_of(harness), signal.SIGSTOP)
        Path(task.sandbox, 'go').write_text('\n')

    harness.when_file(Path(task.sandbox, 'ready'), stop)
    harness.run(task)
    assert task.target_state == states.FAILED
    assert 'has ended with signal 9' in str(task.exception_detail)


def test_no_shell_can_be_started(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise BlockingIOError(11, 'Resource temporarily unavailable')

    monkeypatch.setattr(component, 'SHORTAGE_LIMIT', 0)
    with monkeypatch.context() as patch:
        patch.setattr('socket.socketpair', fails)
        task = harness.run_one()
    assert task.exception_detail == ('cannot start the shell that runs the task: Resource temporarily unavailable '
                                     '(for 0 s, with no other task running)')
    assert harness.run_one(uid='task.1').target_state == states.DONE


def test_a_shell_that_does_not_exist(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(component, 'SHORTAGE_LIMIT', 0)
        patch.setattr(shell_loop, 'SHELL', '/no/such/shell')
        task = harness.run_one()
    assert str(task.exception_detail).startswith('the shell that starts tasks does not answer: ')
    assert harness.run_one(uid='task.1').target_state == states.DONE


def test_a_program_that_the_shell_needs_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, 'defpath', '/nowhere')
    with pytest.raises(PlatformError, match=r'agent_spawner SHELL needs the program env.* not in /no/where: install'):
        shell_loop.prologue('/no/where', [])


def test_an_environment_program_that_cannot_reset_signals(make: Callable[..., Harness], tmp_path: Path) -> None:
    """That of an older system: tasks run all the same."""
    old = tmp_path / 'bin' / 'env'
    old.parent.mkdir()
    old.write_text('#!/bin/sh\ncase $1 in (--default*) exit 125;; esac\nexec /usr/bin/env "$@"\n')
    old.chmod(0o755)
    harness = make(PATH=f'{old.parent}:/usr/bin:/bin')
    task = harness.run_one(executable='echo', arguments=['here'])
    assert text(task, 'task.000000.out') == 'here\n'


def test_the_agent_is_killed(tmp_path: Path) -> None:
    """The kernel ends the shell with the agent, and the tasks with the shell."""
    program = f'''if True:
        import os
        from pathlib import Path
        from executor_support import Harness, sh
        from rp_agent.executor.shell import ShellExecutor
        path = Path({str(tmp_path)!r})
        harness = Harness(path, ShellExecutor)
        task = harness.task(**sh(r'echo \\$PPID \\$\\$ >ready; exec sleep 1000'))
        harness.wanted = 1
        harness.executor.put([task])
        harness.when_file(path / 'task.000000/ready', lambda: os.kill(os.getpid(), 9))
        harness.wait()
    '''
    ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, timeout=50, check=False,
                         env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)})
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    for pid in (tmp_path / 'task.000000/ready').read_text().split():
        wait_for_end(int(pid))


def test_nothing_remains_after_close(make: Callable[..., Harness]) -> None:
    harness = make()
    harness.run_one(**sh(r'kill \$\$'))
    pid = shell_of(harness)
    harness.executor.close()
    assert read_process(pid) is None


@pytest.mark.parametrize('shell', SHELLS[:1], indirect=True)
def test_signals_of_tasks_are_not_worth_a_message(harness: Harness) -> None:
    """To bash they are, if it hears of them before it is asked."""
    harness.run_one(**sh(r'kill -KILL \$\$'))
    assert Path(harness.context.pilot_sandbox, 'agent_executing.0000.sh.err').read_text() == ''
