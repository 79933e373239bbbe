"""What happens when a process of a session dies, whichever it is: what the user sees, and that nothing else is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from conftest import Run, hub_pid, pilot_description, processes_of, processes_with, wait_until

import radical.pilot as rp
from rp_api.coordination.results import read_results

pytestmark = pytest.mark.fault
APPLICATION = Path(__file__).with_name('application.py')


def pid_of(what: str, where: str) -> int:
    """The process of a session whose command line has `what`, and whose environment or command line has `where`."""
    found = [pid for pid, command in processes_with(where).items() if what in command]
    assert len(found) == 1, found
    return found[0]


def agent_pid(run: Run) -> int:
    return pid_of('rp_agent', run.pilot.pilot_sandbox)


@contextmanager
def application(base: Path, orphan_timeout: float, *commands: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A running application that has submitted its tasks, and its session directory."""
    process = subprocess.Popen([sys.executable, APPLICATION, base, str(orphan_timeout), *commands],
                               stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        word, _, path = process.stdout.readline().strip().partition(' ')
        assert word == 'ready'
        yield process, Path(path)
    finally:
        process.kill()
        process.communicate()


def test_agent_killed(run: Run, base: Path) -> None:
    """Pilot and unfinished tasks fail with the reason, long before a lease ends; done ones and other pilots do not."""
    other = run.pmgr.submit_pilots(pilot_description(base, cores=1))
    run.tmgr.add_pilots(other)
    other.wait(rp.PMGR_ACTIVE, timeout=30)
    done = run.one(executable='/bin/echo', arguments=['kept'], pilot=run.pilot.uid)
    # the task starts a grandchild in a session of its own, which must not survive
    lost = run.tmgr.submit_tasks(rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', 'setsid sleep 1234 & echo started; wait'],
        'pilot': run.pilot.uid}))
    waiting = run.tmgr.submit_tasks([rp.TaskDescription({'executable': 'sleep', 'arguments': ['100'],
                                                         'cores_per_rank': 4, 'pilot': run.pilot.uid})])
    lost.wait(rp.AGENT_EXECUTING, timeout=30)
    wait_until(lambda: [command for command in processes_of(lost).values() if 'sleep 1234' in command])
    elsewhere = run.tmgr.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': ['3'],
                                                          'pilot': other.uid}))
    os.kill(agent_pid(run), signal.SIGKILL)
    run.pilot.wait(timeout=30)
    run.tmgr.wait_tasks([lost.uid, waiting[0].uid], timeout=30)
    assert run.pilot.state == rp.FAILED
    assert 'killed by signal 9 (SIGKILL)' in str(run.pilot.exception)
    assert 'agent_0.err' in str(run.pilot.exception_detail)
    assert run.pilot.log[-1] == run.pilot.exception
    for task in (lost, waiting[0]):
        assert task.state == rp.FAILED
        assert run.pilot.uid in str(task.exception)
        assert 'SIGKILL' in str(task.exception)
    assert (done.state, done.stdout) == (rp.DONE, 'kept\n')
    belongs = f'RP_PILOT_SANDBOX={run.pilot.pilot_sandbox}'
    wait_until(lambda: not processes_with(belongs), 30, 'end of what the task started')
    elsewhere.wait(timeout=30)
    assert elsewhere.state == rp.DONE


def test_waiting_tasks_fail_when_no_pilot_is_left(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody waits for a pilot that will not come; the reason is on the task and on standard error."""
    os.kill(agent_pid(run), signal.SIGKILL)
    run.pilot.wait(timeout=30)
    task = run.one(executable='/bin/true')
    assert task.state == rp.FAILED
    assert 'no pilot is left' in str(task.exception)
    assert 'SIGKILL' in str(task.exception)
    assert 'SIGKILL' in capfd.readouterr().err


def test_tasks_wait_for_the_next_pilot(session: rp.Session, base: Path) -> None:
    """With `exit_on_error` off, a failed pilot can be replaced."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    first = pmgr.submit_pilots(pilot_description(base, exit_on_error=False))
    tmgr.add_pilots(first)
    first.wait(rp.PMGR_ACTIVE, timeout=30)
    os.kill(agent_pid(Run(session, pmgr, first, tmgr)), signal.SIGKILL)
    first.wait(timeout=30)
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true'}))
    assert task.wait(rp.TMGR_SCHEDULING, timeout=30) == rp.TMGR_SCHEDULING
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    assert task.wait(timeout=30) == rp.DONE


def test_hub_killed(run: Run) -> None:
    """The hub is started again, several times, and nothing is lost."""
    tasks = run.tmgr.submit_tasks([rp.TaskDescription({'executable': 'sleep', 'arguments': ['0.01']})
                                   for _ in range(400)])
    for count in (50, 150, 250):
        run.tmgr.wait_tasks([task.uid for task in tasks[:count]], timeout=30)
        os.kill(hub_pid(run.session), signal.SIGKILL)
    more = run.tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true'}) for _ in range(50)])
    run.tmgr.wait_tasks(timeout=40)
    assert {task.state for task in tasks + more} == {rp.DONE}
    assert run.pilot.state == rp.PMGR_ACTIVE
    stored = list(read_results(run.session.path))
    assert len(stored) == 450


def test_hub_killed_without_orphan_timeout(base: Path) -> None:
    """A hub that comes back does not leave orphans, however impatient the session is with those."""
    with rp.Session(cfg={'base': str(base)}, orphan_timeout=0) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        pilot = pmgr.submit_pilots(pilot_description(base))
        tmgr.add_pilots(pilot)
        task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': ['2']}))
        task.wait(rp.AGENT_EXECUTING, timeout=30)
        os.kill(hub_pid(session), signal.SIGKILL)
        assert task.wait(timeout=30) == rp.DONE
        assert pilot.state == rp.PMGR_ACTIVE


def test_hub_killed_again_and_again(run: Run, base: Path) -> None:
    """When a hub does not stay alive, waits end with the reason, and closing leaves nothing."""
    task = run.tmgr.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': ['100']}))
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    future, engine = task.future(), run.session._owner.engine

    def until_hub_is_gone(pid: int) -> None:
        wait_until(lambda: engine.broken or hub_pid(run.session) != pid, 30, 'restart of the hub')

    while not engine.broken:
        pid = hub_pid(run.session)
        os.kill(pid, signal.SIGKILL)
        until_hub_is_gone(pid)
    with pytest.raises(RuntimeError, match='hub of the session died'):
        task.wait(timeout=30)
    with pytest.raises(RuntimeError, match='hub of the session died'):
        future.result(30)
    with pytest.raises(RuntimeError, match='cannot go on'):
        run.tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true'}))
    run.session.close()
    wait_until(lambda: not processes_with(str(base)))


def test_application_interrupted(base: Path) -> None:
    """Ctrl-c closes the session in order, although the whole process group gets the signal."""
    with application(base, 60, 'sleep 100') as (process, _):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(30)
        assert process.returncode not in (0, None)
        wait_until(lambda: not processes_with(str(base)))


def test_application_killed(base: Path) -> None:
    """What was bound is finished, then everything ends by itself, and the results can be read."""
    with application(base, 0.5, *['sleep 1; echo done'] * 4) as (process, directory):
        process.kill()
        process.wait()
        wait_until(lambda: not processes_with(str(base)), 30, 'end of hub and agent')
    results = list(read_results(directory))
    assert [(result['state'], result['stdout'], result['exit_code']) for result in results] == [
        (rp.DONE, 'done\n', 0)] * 4
    shown = subprocess.run([sys.executable, '-m', 'rp_api.coordination.results', directory], check=True,
                           capture_output=True, text=True).stdout
    assert [json.loads(line) for line in shown.splitlines()] == results


def test_application_killed_without_orphan_timeout(base: Path) -> None:
    """With `orphan_timeout=0` everything is cancelled at once."""
    with application(base, 0, 'sleep 100') as (process, directory):
        process.kill()
        process.wait()
        wait_until(lambda: not processes_with(str(base)), 30, 'end of hub and agent')
    assert [result['state'] for result in read_results(directory)] == [rp.CANCELED]


@pytest.mark.parametrize('with_hub', [False, True], ids=['application', 'application and hub'])
@pytest.mark.parametrize('what', ['environment', 'service', 'worker'])
def test_application_killed_whose_tasks_wait_for_what_cannot_come(base: Path, what: str, with_hub: bool) -> None:
    """An environment that nothing prepares, cores that services or workers keep; a task after such a task."""
    with application(base, 0.5, what) as (process, directory):
        hub = pid_of('rp_api.coordination.hub.main', str(base))
        process.kill()
        process.wait()
        if with_hub:
            os.kill(hub, signal.SIGKILL)
        wait_until(lambda: not processes_with(str(base)), 60, 'end of hub and agent')
    if not with_hub:
        reasons = [result['exception'] for result in read_results(directory) if result['uid'] in ('waits', 'after')]
        assert len(reasons) == 2
        assert 'waits cannot go on without the application: what they wait for is not on its way' in reasons[0]


def test_application_killed_while_an_environment_is_built(base: Path) -> None:
    """Its task is waited for, and runs, although that takes longer than the time-out."""
    with application(base, 0.5, 'built') as (process, directory):
        process.kill()
        process.wait()
        wait_until(lambda: not processes_with(str(base)), 60, 'end of hub and agent')
    assert [(result['uid'], result['state']) for result in read_results(directory)] == [('waits', rp.DONE)]


@pytest.mark.parametrize('with_hub', [False, True], ids=['application', 'application and hub'])
def test_application_with_a_raptor_master_killed(base: Path, with_hub: bool) -> None:
    """Masters and workers never end by themselves, and nobody waits for that."""
    with application(base, 0.5, 'sleep 1', 'raptor') as (process, directory):
        hub = pid_of('rp_api.coordination.hub.main', str(base))
        process.kill()
        if with_hub:
            os.kill(hub, signal.SIGKILL)   # before it can tell the agent to end
        process.wait()
        wait_until(lambda: not processes_with(str(base)), 45, 'end of hub and agent')
    if not with_hub:   # which would have heard of the ends
        states = {result['uid']: result['state'] for result in read_results(directory)}
        assert states['master'] == rp.CANCELED
        assert list(states.values()).count(rp.DONE) == 1


WITH_FILES = """
import pathlib, sys
import radical.pilot as rp
from rp_api.system.shared_directory import SharedDirectory
with rp.Session(cfg={'base': sys.argv[1]}, orphan_timeout=0.5) as session:
    rp.TaskManager(session)
    directory = SharedDirectory()
    pathlib.Path(directory.path, 'file').write_bytes(bytes(100))
    print(directory.path, flush=True)
    input()
"""


def test_files_in_memory_of_a_killed_application_are_removed_by_its_hub(base: Path) -> None:
    """And those of an application that lives are not."""
    with ExitStack() as stack:
        killed, alive = (stack.enter_context(subprocess.Popen(
            [sys.executable, '-c', WITH_FILES, base], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(2))
        paths = []
        for process in (killed, alive):
            stack.callback(process.kill)
            assert process.stdout
            paths.append(Path(process.stdout.readline().strip()))
            assert Path(paths[-1], 'file').exists()
        killed.kill()
        wait_until(lambda: not paths[0].exists())
        assert Path(paths[1], 'file').exists()
        assert alive.communicate('\n', timeout=20)[0] == ''
    wait_until(lambda: not processes_with(str(base)), 60, 'end of the hubs')


def test_application_killed_and_directory_gone(base: Path) -> None:
    """Nobody stays alive because the files of the session have gone."""
    with application(base, 0.5, 'sleep 1') as (process, directory):
        process.kill()
        process.wait()
        shutil.rmtree(directory)
        wait_until(lambda: not processes_with(str(base)), 30, 'end of hub and agent')


def test_application_and_hub_killed(base: Path) -> None:
    """An agent that has lost both ends by itself, too."""
    with application(base, 0.5, 'sleep 1') as (process, _):
        hub = pid_of('rp_api.coordination.hub.main', str(base))
        process.kill()
        os.kill(hub, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not processes_with(str(base)), 30, 'end of the agent')


def test_agent_stopped_by_signal(run: Run) -> None:
    """SIGTERM, as batch systems send it, ends a pilot in order."""
    task = run.tmgr.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': ['100']}))
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    os.kill(agent_pid(run), signal.SIGTERM)
    assert run.pilot.wait(timeout=30) == rp.CANCELED
    assert task.wait(timeout=30) == rp.FAILED
    assert (task.error and task.error.kind, 'signal' in str(task.exception)) == ('pilot', True)
    assert 'signal' in run.pilot.log[-1]
