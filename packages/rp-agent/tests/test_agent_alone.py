"""Agents without their coordinator: work goes on, and no result is lost, whether the coordinator comes back or not."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
from agent_support import PILOT, RealAgent, real, uids, wait_for_process, wait_until

from rp_api import states
from rp_api.coordination import spool_file
from rp_api.coordination.contract import Update
from rp_api.system.host import host_id
from rp_api.task_modes import PILOT_RPC

pytestmark = pytest.mark.fault

LEFT = states.TMGR_STAGING_OUTPUT_PENDING, states.DONE
MARK = 'touch {}; while [ ! -e {} ]; do sleep 0.05; done; echo done'


def shell(command: str) -> dict[str, Any]:
    return {'executable': '/bin/sh', 'arguments': ['-c', command]}


def test_pilot_tells_where_its_agent_is(tmp_path: Path) -> None:
    with real(tmp_path) as (application, agent):
        active = application.pilots[0]
        assert active.info is not None
        assert active.info['agent'] == {'pid': agent.process.pid, 'host': host_id()}
        assert active.info['resource_details']['cores'] == 2


def test_tasks_do_not_get_the_keys(tmp_path: Path) -> None:
    """They are told where the session is, but not how to get in."""
    with real(tmp_path) as (application, _):
        application.submit(uids(1), **shell(f'env > {tmp_path}/environment'))
        application.until_left(uids(1))
        access = application.hub.agent_access
        environment = (tmp_path / 'environment').read_text()
        assert f'RP_REGISTRY_ADDRESS={access["endpoint"]}\n' in environment
        assert not [name for name in ('public', 'secret', 'server') if access[name] in environment]


@pytest.mark.parametrize('settings', [{}, {'requeue': True, 'earlier': {'host': 'n1', 'time': 1.0}}])
def test_calls_are_not_repeated_by_a_later_run_of_the_job(tmp_path: Path, settings: dict[str, Any]) -> None:
    """It gets the command again, but not the task of a call that was answered, here one that ends the pilot."""
    call = {'mode': PILOT_RPC, 'args': [], 'kwargs': {}}
    answered = call | {'uid': 'pilot.rpc.0000', 'method': 'cancel_pilots'}
    with real(tmp_path, agent={'enable_ep': True} | settings) as (application, agent):
        application.command(cmd='call', task=answered)
        application.submit(['pilot.rpc.0001'], **call, method='get_tasks')
        if not settings:
            assert agent.wait() == 0
            return
        application.until_left(['pilot.rpc.0001'])
        assert application.tasks['pilot.rpc.0001'].state == states.DONE


def test_hub_is_away_for_the_whole_run(tmp_path: Path) -> None:
    """Tasks that have come are run, and the results are there when the hub is back."""
    release = tmp_path / 'release'
    with real(tmp_path) as (application, agent):
        application.submit(uids(1), **shell(MARK.format(tmp_path / 'started', release)))
        application.submit(uids(50, 1), **shell(f'echo $RP_TASK_ID | tee -a {tmp_path}/ran'))
        application.until_state(uids(1), states.AGENT_EXECUTING)
        application.kill_hub()
        release.touch()
        wait_until(lambda: all((agent.sandbox / uid / f'{uid}.out').exists() for uid in uids(51)), 'all tasks')
        application.hub.start()
        application.until_left(uids(51))
        assert {uid: update.info['stdout'] for uid, update in application.tasks.items() if update.info} == {
            uids(1)[0]: 'done\n', **{uid: f'{uid}\n' for uid in uids(50, 1)}}
        assert sorted((tmp_path / 'ran').read_text().split()) == uids(50, 1)   # each of them once
        application.command(cmd='cancel_pilot', reason='cancelled')
        assert agent.wait() == 0
        application.until(lambda: application.pilots[-1].state == states.CANCELED, 'the end of the pilot')
        assert not agent.updates.exists()


def test_hub_is_gone_for_good(tmp_path: Path) -> None:
    """The agent finishes what it has, waits, and ends; everything that did not arrive is in a file, and stays."""
    release = tmp_path / 'release'
    with real(tmp_path, agent={'orphan_timeout': 0.2},
              setup='import rp_agent.reporting.coordinator_link as a; a.RETURN_TIMEOUT = 0.2') as (application, agent):
        application.submit(uids(1), **shell(MARK.format(tmp_path / 'started', release)))
        application.submit(uids(200, 1), **shell('echo $RP_TASK_ID; echo wrong >&2; exit 3'))
        application.until_state(uids(1), states.AGENT_EXECUTING)
        application.until(lambda: len(application.tasks) > 1, 'one of the others, which all come together')
        application.kill_hub()
        agent.until_logged('the coordinator is lost')
        release.touch()
        assert agent.wait() == 0
        assert stat.S_IMODE(agent.updates.stat().st_mode) == 0o600
        left = spool_file.read(agent.updates)
        last = {update.uid: update for update in left.tasks}
        arrived = {uid for uid, update in application.tasks.items() if update.state in LEFT}
        assert set(last) | arrived == set(uids(201))
        assert uids(1)[0] in last
        assert {update.state for update in last.values()} <= set(LEFT)
        for uid, update in last.items():
            assert update.info is not None
            end = update.info['exit_code'], update.info.get('target_state', update.state), update.info['stdout']
            first = uid == uids(1)[0]
            assert end == ((0, states.DONE, 'done\n') if first else (3, states.FAILED, f'{uid}\n'))
        pilot, = left.pilots
        assert (pilot.uid, pilot.state, left.torn) == (PILOT, states.CANCELED, 0)
        assert pilot.info is not None
        assert pilot.info['reason'] == f'{PILOT} lost its coordinator'
        assert not Path(application.hub.endpoint.removeprefix('ipc://')).parent.exists()


def test_agent_told_to_end_while_the_hub_is_away(tmp_path: Path) -> None:
    """As by a batch system: it ends its tasks, and leaves all results on disk, also when it should clean up.

    The application knows of those that have not started, as the agent does not keep them.
    """
    with real(tmp_path, agent={'cleanup': True}) as (application, agent):
        application.submit(uids(4), **shell('echo $RP_TASK_ID; exec sleep 100'))
        application.until_state(uids(2), states.AGENT_EXECUTING)
        said = agent.sandbox / uids(1)[0] / f'{uids(1)[0]}.out'
        wait_until(lambda: said.read_text() == f'{uids(1)[0]}\n', 'the first task')
        application.kill_hub()
        agent.until_logged('the coordinator is lost')
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 0
        left = spool_file.read(agent.updates)
        last = {update.uid: update for update in left.tasks}
        assert {uid: update.info and update.info.get('target_state', update.state)
                for uid, update in last.items()} == dict.fromkeys(uids(2), states.FAILED)
        first = last[uids(1)[0]].info
        assert first is not None
        assert first['stdout'] == f'{uids(1)[0]}\n'
        assert [(pilot.uid, pilot.state, pilot.info and pilot.info['kept']) for pilot in left.pilots] == [
            (PILOT, states.CANCELED, [])]
        assert os.listdir(agent.sandbox) == ['agent_0.updates']


def test_runtime_is_over_while_the_hub_is_away(tmp_path: Path) -> None:
    with real(tmp_path, agent={'runtime': 6 / 60}) as (application, agent):
        application.submit(uids(1), **shell('echo started; exec sleep 100'))
        application.until_state(uids(1), states.AGENT_EXECUTING)
        application.kill_hub()
        assert agent.wait() == 0
        left = spool_file.read(agent.updates)
        assert [pilot.state for pilot in left.pilots] == [states.DONE]
        last = left.tasks[-1]
        assert last.info is not None
        assert (last.info['target_state'], last.info['error']['kind']) == (states.FAILED, 'pilot')


def test_hub_comes_back_for_the_last_word(tmp_path: Path) -> None:
    """The agent is about to end: what it would have left on disk arrives, and nothing is left."""
    with real(tmp_path, setup='import rp_agent.reporting.coordinator_link as f; f.DELIVERY_TIMEOUT = 20',
              agent={'cleanup': True}) as (application, agent):
        application.submit(uids(4), **shell('exec sleep 100'))
        application.until_state(uids(2), states.AGENT_EXECUTING)
        application.kill_hub()
        agent.until_logged('the coordinator is lost')
        agent.signal(signal.SIGTERM)
        wait_until(agent.updates.exists, 'the file')   # the tasks have ended, and the sandbox is cleaned up
        application.hub.start()
        application.until(lambda: application.pilots[-1].state == states.CANCELED, 'the end of the pilot')
        assert agent.wait() == 0
        application.until(lambda: {*uids(2)} <= application.tasks.keys(), 'all tasks that have started')
        assert not agent.sandbox.exists()


def test_results_beyond_the_limit_wait_on_disk(tmp_path: Path) -> None:
    """They are sent from there when the hub is back, and the file goes."""
    release = tmp_path / 'release'
    with real(tmp_path, setup='import rp_agent.reporting.reporter as r; r.MOST_BYTES = 20_000') as (application, agent):
        application.submit(uids(1), cores_per_rank=2, **shell(MARK.format(tmp_path / 'started', release)))
        application.submit(uids(300, 1), **shell('echo $RP_TASK_ID'))
        application.until_state(uids(1), states.AGENT_EXECUTING)
        application.until_state(uids(300, 1), states.AGENT_SCHEDULING)
        application.kill_hub()
        release.touch()
        wait_until(agent.updates.exists, 'the file')
        application.hub.start()
        application.until_left(uids(301))
        wait_until(lambda: not agent.updates.exists(), 'the end of the file')
        assert {uid: update.info and update.info['stdout'] for uid, update in application.tasks.items()} == {
            uids(1)[0]: 'done\n', **{uid: f'{uid}\n' for uid in uids(300, 1)}}
        assert len(application.seen) == len(set(application.seen))


def test_disk_that_is_full(tmp_path: Path) -> None:
    """What is no longer written stays in memory, and everything arrives in the end."""
    release = tmp_path / 'release'
    setup = ('import rp_agent.reporting.reporter as r; r.MOST_BYTES = 20_000; '
             'import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))')
    with real(tmp_path, setup=setup) as (application, agent):
        application.submit(uids(1), cores_per_rank=2, **shell(MARK.format(tmp_path / 'started', release)))
        application.submit(uids(300, 1), **shell('echo $RP_TASK_ID'))
        application.until_state(uids(300, 1), states.AGENT_SCHEDULING)
        application.kill_hub()
        release.touch()
        agent.until_logged('results that cannot be sent stay in memory')
        application.hub.start()
        application.until_left(uids(301))
        wait_until(lambda: not agent.updates.exists(), 'the end of the file')
        assert agent.log().count('stay in memory') == 1


def test_stopped_hub(tmp_path: Path) -> None:
    """A hub that is stopped for longer than the lease has not lost its agents when it goes on."""
    with real(tmp_path, lease=1.0) as (application, agent):
        application.submit(uids(1), **shell('sleep 2.5; echo done'))
        application.until_state(uids(1), states.AGENT_EXECUTING)
        os.kill(application.hub.pid, signal.SIGSTOP)
        out = agent.sandbox / uids(1)[0] / f'{uids(1)[0]}.out'
        wait_until(lambda: out.read_text() == 'done\n', 'the task')
        os.kill(application.hub.pid, signal.SIGCONT)
        application.until_left(uids(1))
        application.submit(uids(10, 1))
        application.until_left(uids(11))
        assert application.pilots[-1].state == states.PMGR_ACTIVE


def test_stopped_agent(tmp_path: Path) -> None:
    """The same for the agent: nothing is lost, and nothing ends."""
    with real(tmp_path, lease=1.0) as (application, agent):
        application.submit(uids(1), **shell('sleep 2.5; echo done'))
        application.until_state(uids(1), states.AGENT_EXECUTING)
        agent.signal(signal.SIGSTOP)
        out = agent.sandbox / uids(1)[0] / f'{uids(1)[0]}.out'
        wait_until(lambda: out.read_text() == 'done\n', 'the task')
        agent.signal(signal.SIGCONT)
        application.submit(uids(10, 1))
        application.until_left(uids(11))


def test_agent_has_enough(tmp_path: Path) -> None:
    """It asks for no more from a mark on, gets commands all the same, and asks again when it has little left."""
    count = 10_000
    setup = 'import rp_agent.pipeline.arrivals as i; i.HIGH_WATER_TASKS = 20; i.PER_CORE = 1'
    with real(tmp_path, setup=setup) as (application, _):
        application.submit(uids(count), **shell('exec sleep 100'))
        application.until_state(uids(2), states.AGENT_EXECUTING)
        application.command(cmd='cancel_tasks', uids=uids(count))
        application.until(lambda: len(application.tasks) == count and all(
            update.state in (*LEFT, states.CANCELED) for update in application.tasks.values()), 'all tasks')
        reasons = [update.info.get('exception', '') for update in application.tasks.values() if update.info]
        assert 0 < reasons.count(f'cancelled before it came to {PILOT}') < count - 2
        assert {update.info and update.info.get('target_state', update.state)
                for update in application.tasks.values()} == {states.CANCELED}


def test_agent_never_has_enough_of_tasks_that_wait_for_others(tmp_path: Path) -> None:
    """The ones that they wait for may come last."""
    count = 10_000

    def tags(number: int, size: int) -> dict[str, Any]:
        return {'order': {'ns': 'x', 'order': number, 'size': size}}

    platform = {'agent_spawner': 'POPEN', 'agent_config': 'default', 'agent_scheduler': 'CONTINUOUS_ORDERED'}
    with real(tmp_path, setup='import rp_agent.pipeline.arrivals as i; i.HIGH_WATER_TASKS = 2048; i.PER_CORE = 1',
              agent={'platform': platform}) as (application, _):
        application.submit(uids(count), tags=tags(1, count), **shell('exec sleep 100'))
        application.submit(uids(1, count), tags=tags(0, 1), **shell('echo first'))
        application.until_left(uids(1, count))
        application.until_state(uids(2), states.AGENT_EXECUTING)


def test_agent_that_was_silent_for_too_long(tmp_path: Path) -> None:
    """Its pilot has been given up: when it comes back, it is told to end, with the reason, and leaves nothing."""
    # else the hub would see that it lives
    elsewhere = "import rp_api.system.host as h; h.host_id = lambda: 'elsewhere'"
    with real(tmp_path, setup=elsewhere, lease=1.0) as (application, agent):
        application.submit(uids(1), **shell('exec sleep 100'))
        application.until_state(uids(1), states.AGENT_EXECUTING)
        agent.signal(signal.SIGSTOP)
        application.until(lambda: application.pilots[-1].state == states.FAILED, 'the end of the pilot')
        lost = application.pilots[-1].info
        assert lost is not None
        assert 'silent for longer than its lease' in lost['exception']
        agent.signal(signal.SIGCONT)
        assert agent.wait() == 0
        assert f'the pilot ends as FAILED: is FAILED already: {lost["exception"]}' in agent.log()
        assert application.pilots[-1] == Update(PILOT, states.FAILED, lost)
        assert not agent.updates.exists()


def test_agent_that_is_refused(tmp_path: Path) -> None:
    """As another one is in its place: it ends its tasks, with all that they have left running, and says why."""
    daemon = f'(setsid sleep 1000 & echo \\$! > {tmp_path}/daemon.new; mv {tmp_path}/daemon.new {tmp_path}/daemon)'
    with real(tmp_path) as (application, agent):
        application.submit(uids(1), **shell(f'{daemon}; exec sleep 1000'))
        application.until_state(uids(1), states.AGENT_EXECUTING)
        wait_until((tmp_path / 'daemon').exists, 'the daemon')
        left = int((tmp_path / 'daemon').read_text())
        (tmp_path / 'other').mkdir()
        other = RealAgent(application.hub.agent_access, tmp_path / 'other', 'pass')
        try:
            assert agent.wait() == 1
            assert agent.log().startswith(f'rp-agent: another process has taken the place of agent_0 of {PILOT}\n')
            wait_for_process(left)
            application.submit(uids(1, 1))
            application.until_left(uids(1, 1))
        finally:
            other.close()


def test_attribute_of_a_later_version(tmp_path: Path) -> None:
    """The application may be newer than the agent, for which the attribute may matter."""
    with real(tmp_path) as (application, _):
        application.submit(['task.1'], after_all=['task.0'], executable='touch', arguments=[f'{tmp_path}/ran'])
        application.submit(['task.2'])
        application.until_left(['task.1', 'task.2'])
        info = application.tasks['task.1'].info
        assert info is not None
        assert application.tasks['task.1'].state == states.FAILED
        assert "does not know the attribute 'after_all'" in info['exception']
        assert info['error']['kind'] == 'description'
        assert not (tmp_path / 'ran').exists()
