"""The supervisor of a divided pilot, with real agents and a real hub: how pilot and partitions begin and end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_support import PILOT, Application, RealAgent, wait_until

from rp_api import states
from rp_api.coordination import spool_file
from rp_api.coordination.contract import Submission
from rp_api.partitions import partition_uid

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


def test_a_hub_that_is_gone_for_good(tmp_path: Path) -> None:
    """Tasks are finished, agents and supervisor end, and results that nobody took stay, also if the rest is to go."""
    release = tmp_path / 'release'
    with kept(tmp_path, cleanup=True, orphan_timeout=0.1) as (application, supervisor):
        application.until_pilot(PILOT, states.PMGR_ACTIVE)
        task = Submission('task.0', {'executable': '/bin/sh', 'arguments': [
            '-c', f'touch {tmp_path}/started; while [ ! -e {release} ]; do sleep 0.02; done; echo $RP_PARTITION_ID']})
        application.do(application._connection.insert_tasks, SECOND, [task])
        wait_until((tmp_path / 'started').exists, 'the task')
        application.kill_hub()
        release.touch()
        assert supervisor.wait() == 0
        (update,) = spool_file.read(supervisor.sandbox / SECOND / 'agent_0.updates').tasks
        assert update.info is not None
        assert (update.uid, update.info['stdout']) == ('task.0', '1\n')
        assert not (supervisor.sandbox / FIRST / 'agent_0.cfg').exists()
