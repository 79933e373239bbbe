"""Finding and ending processes, with real ones."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from rp_api.system import processes
from rp_api.system.processes import Process, kill_tree, process_table, read_process, sweep, tree

TAG = f'RP_TEST_PROCESSES_{os.getpid()}'


def a_process(pid: int, parent: int = 1, group: int = 0, session: int = 0, state: str = 'S') -> Process:
    return Process(pid, state, parent, group or pid, session or pid, 0)


def a_table(*members: Process) -> dict[int, Process]:
    return {process.pid: process for process in members}


class Spawned:
    """Processes of a test; all that are left are killed at its end."""

    def __init__(self) -> None:
        self.pidfds: dict[int, int] = {}
        self.popens: list[subprocess.Popen[str]] = []

    def shell(self, command: str, *, count: int = 1, **env: str) -> list[int]:
        """Start a shell in a session of its own; gives its pid and the numbers in the `count` lines it prints."""
        popen = subprocess.Popen(['/bin/sh', '-c', command], stdout=subprocess.PIPE, text=True, start_new_session=True,
                                 env={'PATH': '/usr/bin:/bin', **env})
        self.popens.append(popen)
        assert popen.stdout is not None
        pids = [popen.pid, *(int(popen.stdout.readline()) for _ in range(count))]
        self.pidfds.update((pid, os.pidfd_open(pid)) for pid in pids)
        return pids

    def sleeper(self, **env: str) -> int:
        """Start a shell that becomes `sleep`; gives its pid when it has, as nothing has an environment on the way."""
        pid = self.shell('echo $$; exec sleep 1000', count=1, **env)[0]
        deadline = time.monotonic() + 30
        while not Path(f'/proc/{pid}/cmdline').read_bytes().startswith(b'sleep'):
            assert time.monotonic() < deadline
        return pid

    def ended(self, pid: int, timeout: float = 30) -> bool:
        return bool(select.select([self.pidfds[pid]], [], [], timeout)[0])

    def close(self) -> None:
        for pidfd in self.pidfds.values():
            if not select.select([pidfd], [], [], 0)[0]:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
        for popen in self.popens:
            if popen.returncode is None:
                os.killpg(popen.pid, signal.SIGKILL)
            popen.communicate()


@pytest.fixture
def spawned() -> Iterator[Spawned]:
    each = Spawned()
    yield each
    each.close()


def test_read_process() -> None:
    process = read_process(os.getpid())
    assert process is not None
    assert (process.parent, process.group, process.session) == (os.getppid(), os.getpgrp(), os.getsid(0))
    assert process.alive
    assert process_table()[os.getpid()].started == process.started


def test_a_name_with_spaces_and_parentheses(tmp_path: Path) -> None:
    program = tmp_path / 'a) S (b'
    program.symlink_to('/bin/sleep')
    with subprocess.Popen([program, '1000']) as popen:
        process = read_process(popen.pid)
        popen.kill()
    assert process is not None
    assert process.parent == os.getpid()


def test_an_ended_process_is_not_alive() -> None:
    with subprocess.Popen(['/bin/true']) as popen:
        os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
        process = read_process(popen.pid)
        assert process is not None
        assert not process.alive
    assert read_process(popen.pid) is None
    assert processes.pidfd_open(popen.pid) is None


# a process is its number and its start time


def test_a_process_is_opened_by_number_and_start_time(spawned: Spawned) -> None:
    pid = spawned.sleeper()
    started = processes.start_time(pid)
    assert started is not None
    pidfd = processes.open_process(pid, started)
    assert pidfd is not None
    assert processes.lives(pid, started)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    assert select.select([pidfd], [], [], 30)[0]
    assert not processes.lives(pid, started)   # it is still there, to be reaped
    os.close(pidfd)


def test_another_process_with_the_number_is_not_opened(spawned: Spawned) -> None:
    """Nor is its descriptor kept."""
    pid = spawned.sleeper()
    before = os.listdir('/proc/self/fd')
    assert processes.open_process(pid, 1) is None
    assert os.listdir('/proc/self/fd') == before
    assert not processes.lives(pid, 1)


def test_a_process_that_is_gone_is_not_opened() -> None:
    with subprocess.Popen(['/bin/true']) as popen:
        started = processes.start_time(popen.pid)
    assert started is not None
    assert processes.open_process(popen.pid, started) is None
    assert processes.start_time(popen.pid) is None


def test_a_process_that_does_not_tell_its_start_time_is_its_number() -> None:
    pidfd = processes.open_process(os.getpid(), None)
    assert pidfd is not None
    os.close(pidfd)
    assert processes.lives(os.getpid(), None)


def test_tree_follows_sessions_groups_and_parents() -> None:
    table = a_table(a_process(1, 0), a_process(10), a_process(11, 10, 10, 10), a_process(12, 1, 12, 10),
                    a_process(13, 1, 10, 10), a_process(14, 12), a_process(15, 14), a_process(20),
                    a_process(21, 20, 20, 20))
    assert tree([10], table) == {10, 11, 12, 13, 14, 15}
    assert tree([10, 20], table) == {10, 11, 12, 13, 14, 15, 20, 21}
    assert tree([99], table) == set()


def test_tree_leaves_out_what_has_ended_but_not_its_children() -> None:
    table = a_table(a_process(10, state='Z'), a_process(11, 10, state='Z'), a_process(12, 11))
    assert tree([10], table) == {12}


def test_kill_tree(spawned: Spawned) -> None:
    """A child in the group, an orphan, and a child with a session of its own."""
    command = 'sleep 1000 & echo $!; (sleep 1000 & echo $!); setsid sh -c "echo \\$\\$; sleep 1000"'
    pids = spawned.shell(command, count=3)
    other = spawned.shell('echo $$; sleep 1000')[0]
    assert set(kill_tree([pids[0]], signal.SIGKILL)) >= set(pids)
    assert all(spawned.ended(pid) for pid in pids)
    assert not spawned.ended(other, 0)


def test_kill_tree_finds_the_session_of_a_leader_that_has_ended(spawned: Spawned) -> None:
    leader, left = spawned.shell('sleep 1000 & echo $!; exit 0')
    spawned.popens[0].wait()
    assert kill_tree([leader], signal.SIGTERM) == [left]
    assert spawned.ended(left)


def test_kill_tree_kills_what_it_stopped(spawned: Spawned, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with a session of its own loses its parent between being stopped and being killed."""
    parent, child = spawned.shell('setsid sh -c "echo \\$\\$; exec sleep 1000" & wait')
    signal_tree = processes._signal_tree

    def parent_ends(roots: Collection[int], sig: int) -> dict[int, Process]:
        if sig == signal.SIGKILL:
            os.kill(parent, signal.SIGKILL)
            spawned.popens[0].wait()
        return signal_tree(roots, sig)

    monkeypatch.setattr(processes, '_signal_tree', parent_ends)
    assert kill_tree([parent], signal.SIGKILL) == [child]
    assert spawned.ended(child)


def test_kill_tree_with_a_signal_that_does_not_end(spawned: Spawned) -> None:
    pid = spawned.shell('trap "" TERM; echo $$; while :; do sleep 1000; done')[0]
    assert pid in kill_tree([pid], signal.SIGTERM)
    assert pid in kill_tree([pid], signal.SIGKILL)
    assert spawned.ended(pid)


def test_kill_tree_never_kills_itself() -> None:
    assert os.getpid() not in kill_tree([os.getpid()], 0)   # other tests of this process may have children
    assert kill_tree([], signal.SIGKILL) == []
    assert kill_tree([0], signal.SIGKILL) == []


def test_kill_tree_keeps_up_with_a_process_that_starts_others(spawned: Spawned) -> None:
    pid = spawned.shell('echo $$; while :; do sleep 0.001 & done')[0]
    kill_tree([pid], signal.SIGKILL)
    assert spawned.ended(pid)
    spawned.popens[0].wait()
    kill_tree([pid], signal.SIGKILL)
    deadline = time.monotonic() + 30
    while tree([pid], process_table()):   # what was killed may take a moment to end
        assert time.monotonic() < deadline


def test_sweep_finds_a_daemon_by_its_environment(spawned: Spawned, tmp_path: Path) -> None:
    program = tmp_path / 'daemon.py'
    # it says its number when its ancestors, who have the same environment, have gone and closed the pipe
    program.write_text('import os, time\nread, write = os.pipe()\nif os.fork(): os._exit(0)\nos.setsid()\n'
                       'if os.fork(): os._exit(0)\nos.close(write)\nos.read(read, 1)\n'
                       'os.write(1, f"{os.getpid()}\\n".encode())\ntime.sleep(1000)\n')
    daemon = spawned.shell(f'exec {sys.executable} {program}', RP_SESSION_ID=TAG, RP_TASK_ID='task.1')[1]
    other = spawned.shell('echo $$; sleep 1000', RP_SESSION_ID=TAG, RP_TASK_ID='task.10')[0]
    assert sweep({'RP_SESSION_ID': TAG, 'RP_TASK_ID': 'task.1'}, signal.SIGKILL) == [daemon]
    assert spawned.ended(daemon)
    assert not spawned.ended(other, 0)


def test_sweep_finds_a_process_that_executes_programs(spawned: Spawned, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """On the way from one program to the next it has no environment."""
    monkeypatch.setattr(processes, '_EXECUTION', 10.0)   # on a busy machine it may stay on that way
    program = tmp_path / 'again.sh'
    program.write_text(f'exec /bin/sh {program}\n')
    for number in range(100):
        pid = spawned.shell(f'echo; . {program}', count=0, RP_SESSION_ID=TAG, RP_TASK_ID=f'task.{number}')[0]
        output = spawned.popens[-1].stdout
        assert output is not None
        output.readline()
        assert sweep({'RP_SESSION_ID': TAG, 'RP_TASK_ID': f'task.{number}'}, signal.SIGKILL) == [pid]


def test_sweep_for_several_tasks(spawned: Spawned) -> None:
    pids = [spawned.sleeper(RP_SESSION_ID=TAG, RP_TASK_ID=f'task.{index}') for index in range(3)]
    found = sweep({'RP_SESSION_ID': TAG, 'RP_TASK_ID': {'task.0', 'task.2'}}, signal.SIGTERM)
    assert found == sorted([pids[0], pids[2]])
    assert spawned.ended(pids[0])
    assert spawned.ended(pids[2])
    assert sweep({'RP_SESSION_ID': TAG}, signal.SIGTERM) == [pids[1]]


def test_sweep_without_a_match_is_refused() -> None:
    with pytest.raises(ValueError, match='environ_match is empty'):
        sweep({}, 0)


def test_sweep_never_kills_itself() -> None:
    program = ('import os, signal; from rp_api.system.processes import sweep; '
               f'print(sweep({{"RP_SESSION_ID": {TAG!r}}}, signal.SIGKILL))')
    ran = subprocess.run([sys.executable, '-c', program], env={**os.environ, 'RP_SESSION_ID': TAG}, check=True,
                         timeout=30, capture_output=True, text=True)
    assert ran.stdout == '[]\n'


def test_a_number_that_was_given_to_another_process_is_not_hit(spawned: Spawned,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first and the second look the process is replaced by another one."""
    pid = spawned.sleeper()
    read = processes.read_process
    looks: list[int] = []

    def changing(number: int) -> Process | None:
        process = read(number)
        looks.append(number)
        if process is not None and number == pid and looks.count(pid) > 1:
            return process._replace(started=process.started + 1)
        return process

    monkeypatch.setattr(processes, 'read_process', changing)
    assert kill_tree([pid], signal.SIGTERM) == []
    assert not spawned.ended(pid, 0)


# exit codes of children


@pytest.mark.parametrize(('command', 'code'), [('exit 0', 0), ('exit 3', 3), ('kill -TERM $$', -signal.SIGTERM)])
def test_exit_code(command: str, code: int) -> None:
    with subprocess.Popen(['/bin/sh', '-c', command]) as popen:
        assert [processes.exit_code(popen), processes.exit_code(popen), popen.wait()] == [code] * 3


def test_a_child_that_runs_has_no_exit_code(spawned: Spawned) -> None:
    spawned.sleeper()
    assert processes.exit_code(spawned.popens[-1], waits=False) is None
    spawned.popens[-1].kill()
    assert processes.exit_code(spawned.popens[-1]) == -signal.SIGKILL


@pytest.mark.parametrize('waits', [True, False])
def test_exit_code_that_is_not_known_is_no_success(waits: bool) -> None:
    """However often it is asked for."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with subprocess.Popen(['/bin/true']) as popen:
            with pytest.raises(ChildProcessError):
                os.waitpid(popen.pid, 0)   # which returns when it has ended
            assert [processes.exit_code(popen, waits=waits) for _ in range(2)] == [None, None]
    finally:
        signal.signal(signal.SIGCHLD, before)
