"""The supervisor of a divided pilot, with real agents and a real hub: how pilot and partitions begin and end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_support import PILOT, Application, RealAgent, wait_until
from pipeline_support import processes_of

from rp_api import states
from rp_api.batch import Batch
from rp_api.coordination import spool_file
from rp_api.description.partitions import partition_uid

pytestmark = pytest.mark.fault

FIRST, SECOND = (partition_uid(PILOT, number) for number in range(2))


class Kept(Application):
    """The client's end of a divided pilot."""

    def until_pilot(self, uid: str, state: str) -> str:
        """Wait until a pilot or a partition is in that state; the reason."""
        self.until(lambda: [update for update in self.pilots if (update.uid, update.state) == (uid, state)],
                   f'{uid} to be {state}')
        (found,) = [update for update in self.pilots if (update.uid, update.state) == (uid, state)]
        return str((found.info or {}).get('reason'))


@contextmanager
def kept(directory: Path, **values: Any) -> Iterator[tuple[Kept, RealAgent]]:
    """An application and the supervisor of a pilot with two partitions; `values` are those of its configuration."""
    (directory / 'session').mkdir()
    (directory / 'pilot').mkdir()
    application = Kept(directory / 'session')
    try:
        application.do(application._connection.insert_pilots, {PILOT: {}, FIRST: {}, SECOND: {}})
        supervisor = RealAgent(application.hub.agent_access, directory / 'pilot', 'pass', **{'partitions': 2} | values)
        try:
            yield application, supervisor
        finally:
            supervisor.close()
    finally:
        application.close()


def test_told_to_end_by_a_signal(tmp_path: Path) -> None:
    with kept(tmp_path) as (application, supervisor):
        application.until_pilot(PILOT, states.PMGR_ACTIVE)
        assert {update.uid for update in application.pilots[:2]} == {FIRST, SECOND}
        supervisor.signal(signal.SIGTERM)
        assert application.until_pilot(PILOT, states.CANCELED) == f'{PILOT} was told to end by a signal'
        assert supervisor.wait() == 0
        assert [update.uid for update in application.pilots][-1] == PILOT
        assert application.until_pilot(FIRST, states.CANCELED) == f'{FIRST} was told to end by a signal'


def test_the_runtime_is_over(tmp_path: Path) -> None:
    with kept(tmp_path, runtime=0) as (application, supervisor):
        assert application.until_pilot(PILOT, states.DONE) == f'{PILOT} reached its runtime of 0 minutes'
        assert supervisor.wait() == 0
        application.until_pilot(SECOND, states.DONE)


def test_no_partition_can_start(tmp_path: Path) -> None:
    """They say why, and so does the pilot."""
    with kept(tmp_path, agent={'components': {'nonsense': {}}}) as (application, supervisor):
        assert 'nonsense' in application.until_pilot(FIRST, states.FAILED)
        reason = application.until_pilot(PILOT, states.FAILED)
        assert reason.startswith(f'{PILOT} has no partition left: {PILOT}.000')
        assert 'nonsense' in reason
        assert supervisor.wait() == 0
        assert states.PMGR_ACTIVE not in {update.state for update in application.pilots}
        assert not list(supervisor.sandbox.glob('**/*.cfg'))   # with keys


def test_commands_that_are_unknown_or_come_late(tmp_path: Path) -> None:
    with kept(tmp_path) as (application, supervisor):
        application.until_pilot(PILOT, states.PMGR_ACTIVE)
        application.command(cmd='paint', colour='red')
        application.command(cmd='remove_partition', number=7, reason='was removed')
        application.command(cmd='remove_partition', number=0, reason='was removed')
        assert application.until_pilot(FIRST, states.CANCELED) == f'{FIRST} was removed'
        application.command(cmd='cancel_pilot', reason='cancelled')
        application.command(cmd='add_partition', number=2, size={})
        application.until_pilot(PILOT, states.CANCELED)
        assert supervisor.wait() == 0
        assert "command 'paint' is unknown" in supervisor.log()


def test_the_sandbox_goes_with_the_pilot(tmp_path: Path) -> None:
    with kept(tmp_path, cleanup=True) as (application, supervisor):
        application.until_pilot(PILOT, states.PMGR_ACTIVE)
        application.command(cmd='cancel_pilot', reason='cancelled')
        assert supervisor.wait() == 0
        assert not supervisor.sandbox.exists()


@pytest.mark.long
def test_a_hub_that_is_gone_for_good(tmp_path: Path) -> None:
    """Tasks are finished, agents and supervisor end, and results that nobody took stay, also if the rest is to go."""
    release = tmp_path / 'release'
    with kept(tmp_path, cleanup=True, orphan_timeout=0.1) as (application, supervisor):
        application.until_pilot(PILOT, states.PMGR_ACTIVE)
        task: tuple[str, dict[str, Any]] = ('task.0', {'executable': '/bin/sh', 'arguments': [
            '-c', f'touch {tmp_path}/started; while [ ! -e {release} ]; do sleep 0.02; done; echo $RP_PARTITION_ID']})
        application.do(application._connection.insert_batch, SECOND, Batch.of([task]))
        wait_until((tmp_path / 'started').exists, 'the task')
        application.kill_hub()
        release.touch()
        assert supervisor.wait() == 0
        (update,) = spool_file.read(supervisor.sandbox / SECOND / 'agent_0.updates').tasks
        assert update.info is not None
        assert (update.uid, update.info['stdout']) == ('task.0', '1\n')
        assert not (supervisor.sandbox / FIRST / 'agent_0.cfg').exists()


# agents of partitions on their own nodes

SSH = '''#!/bin/sh
echo "$@" >>"${0%/*}/ssh-calls"
test ! -e "${0%/*}/no-ssh" || { echo 'no route to host' >&2; exit 255; }
echo 'Welcome'
for last; do :; done
exec sh -c "$last"
'''
ON_NODES: dict[str, Any] = {
    'agent': {'target': 'node'}, 'cores': 4, 'environment': {'PATH': os.environ['PATH'], 'A': 'b'},
    'platform': {'resource_manager': 'TORQUE', 'cores_per_node': 2, 'agent_spawner': 'POPEN', 'agent_config': 'default',
                 'launch_methods': {'order': ['SSH']}, 'system_architecture': {}}}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretends a job on this host and on h9, which a stand-in for ssh reaches."""
    (tmp_path / 'ssh').write_text(SSH)
    (tmp_path / 'ssh').chmod(0o755)
    (tmp_path / 'nodes').write_text(f'{os.uname().nodename}\n' * 2 + 'h9\n' * 2)
    monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
    monkeypatch.setenv('PBS_JOBID', '1')
    monkeypatch.setenv('PBS_NODEFILE', str(tmp_path / 'nodes'))
    yield
    wait_until(lambda: not processes_of(str(tmp_path / 'pilot')), 'the end of all processes')


def agents_of(uid: str, sandbox: Path) -> list[int]:
    """The processes that are the agent of a partition."""
    return [pid for pid in processes_of(f'{sandbox}/{uid}/agent_0.cfg') if b'rp_agent' in
            Path(f'/proc/{pid}/cmdline').read_bytes() and b'ssh' not in Path(f'/proc/{pid}/cmdline').read_bytes()]


@pytest.mark.long
@pytest.mark.usefixtures('job')
def test_the_agent_of_a_partition_runs_on_its_first_node(tmp_path: Path) -> None:
    with kept(tmp_path, **ON_NODES) as (application, supervisor):
        application.until_pilot(PILOT, states.PMGR_ACTIVE)
        assert {update.uid for update in application.pilots[:2]} == {FIRST, SECOND}
        (call,) = (tmp_path / 'ssh-calls').read_text().splitlines()
        assert f'{SECOND}/agent_0' in call
        assert 'h9' in call
        assert (supervisor.sandbox / SECOND / 'agent_0.out').read_text() == 'Welcome\n'
        application.command(cmd='remove_partition', number=1, reason='was removed')
        assert application.until_pilot(SECOND, states.CANCELED) == f'{SECOND} was removed'
        application.command(cmd='add_partition', number=2, size={})
        application.until(lambda: len((tmp_path / 'ssh-calls').read_text().splitlines()) == 2, 'another partition')
        supervisor.signal(signal.SIGTERM)
        application.until_pilot(PILOT, states.FAILED)
        assert supervisor.wait() == 0
        assert not list(supervisor.sandbox.glob('**/*.cfg'))   # with keys


@pytest.mark.usefixtures('job')
def test_the_death_of_an_agent_on_its_node(tmp_path: Path) -> None:
    with kept(tmp_path, **ON_NODES) as (application, supervisor):
        application.until_pilot(PILOT, states.PMGR_ACTIVE)
        supervisor.signal(signal.SIGUSR1)
        log = supervisor.sandbox / SECOND / 'agent_0.log'
        wait_until(lambda: 'the job got a signal: SIGUSR1' in log.read_text(), 'the warning')
        for pid in agents_of(SECOND, supervisor.sandbox):
            os.kill(pid, signal.SIGKILL)
        assert f'{SECOND}: its agent ended with exit code 137' in application.until_pilot(SECOND, states.FAILED)
        assert FIRST not in {update.uid for update in application.pilots if update.state in states.FINAL}


@pytest.mark.usefixtures('job')
def test_agents_on_nodes_end_with_their_supervisor(tmp_path: Path) -> None:
    with kept(tmp_path, **ON_NODES) as (application, supervisor):
        application.until_pilot(PILOT, states.PMGR_ACTIVE)
        supervisor.signal(signal.SIGKILL)
        assert supervisor.wait() == -signal.SIGKILL
        assert application.until_pilot(SECOND, states.FAILED).startswith(f'{SECOND} was told to end by a signal')


@pytest.mark.usefixtures('job')
def test_a_node_that_cannot_be_reached(tmp_path: Path) -> None:
    (tmp_path / 'no-ssh').touch()
    with kept(tmp_path, **ON_NODES) as (application, _):
        said = application.until_pilot(SECOND, states.FAILED)
        assert said == f'{SECOND}: its agent ended with exit code 255: no route to host'
        application.until_pilot(PILOT, states.PMGR_ACTIVE)


@pytest.mark.usefixtures('job')
def test_no_launch_method_reaches_the_node(tmp_path: Path) -> None:
    platform = ON_NODES['platform'] | {'launch_methods': {'order': ['FORK']}}
    with kept(tmp_path, **ON_NODES | {'platform': platform}) as (application, supervisor):
        assert 'could not be started: the pilot has nodes on other hosts (h9), and no launch method' in (
            application.until_pilot(SECOND, states.FAILED))
        assert not (supervisor.sandbox / SECOND / 'agent_0.cfg').exists()
