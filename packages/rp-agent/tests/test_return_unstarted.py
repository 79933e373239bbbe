"""An agent returns tasks that it has not started: when it is told so, and when it ends."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_support import PILOT, Application, real, uids

from rp_api import states

SLEEP = {'executable': 'sleep', 'arguments': ['100']}


def submit(application: Application, started: Sequence[str], waiting: Sequence[str], own: Sequence[str] = (),
           **description: Any) -> None:
    """Submit tasks that start, and then others that find no room, of which the pilot keeps its own."""
    application.submit(started, **(description or SLEEP))
    application.until_state(started, states.AGENT_EXECUTING)
    application.submit(waiting, **SLEEP)
    application.submit(own, **SLEEP, pilot=PILOT)
    application.until_state([*waiting, *own], states.AGENT_SCHEDULING)


def test_tasks_that_have_not_started_are_not_reported(tmp_path: Path) -> None:
    started, waiting, own = uids(2), uids(3, 2), uids(1, 5)
    with real(tmp_path) as (application, agent):
        submit(application, started, waiting, own)
        application.command(cmd='return_unstarted')
        application.command(cmd='cancel_pilot', reason='cancelled')
        assert agent.wait() == 0
        application.until(lambda: application.pilots[-1].state == states.CANCELED, 'the end of the pilot')
        ended = {uid for uid, update in application.tasks.items() if update.state == states.CANCELED
                 or (update.info or {}).get('target_state') == states.CANCELED}
        assert ended == {*started, *own}
        last = application.pilots[-1].info
        assert last is not None
        assert last['kept'] == []


def test_an_agent_that_is_killed_while_it_ends_has_told_what_it_keeps(tmp_path: Path) -> None:
    """As by a batch system whose patience is over: what has ended before is known, and what may have started."""
    done, started, waiting = uids(1), uids(2, 1), uids(3, 3)
    stays = {'executable': '/bin/sh', 'arguments': ['-c', 'trap "" TERM; sleep 100']}
    with real(tmp_path) as (application, agent):
        application.submit(done, executable='/bin/true')
        application.until_left(done)
        submit(application, started, waiting, **stays)
        agent.signal(signal.SIGTERM)
        application.until(lambda: 'kept' in (application.pilots[-1].info or {}), 'what the agent keeps')
        agent.signal(signal.SIGKILL)
        agent.wait()
        told = [update for update in application.pilots if 'kept' in (update.info or {})]
        assert [(update.state, sorted(update.info['kept']), update.info['announced'])
                for update in told if update.info] == [(states.PMGR_ACTIVE, started, True)]


@pytest.mark.parametrize('earlier', [None, {'host': 'n1', 'time': 1.0}])
def test_a_job_that_is_started_again_keeps_what_it_gets(tmp_path: Path, earlier: dict[str, Any] | None) -> None:
    """Its next run withdraws what the last one has told, which is true if there is no next one."""
    started, waiting = uids(2), uids(3, 2)
    settings = {'requeue': True, **({'earlier': earlier} if earlier else {})}
    with real(tmp_path, agent=settings) as (application, agent):
        first = application.pilots[0].info or {}
        assert ('kept' in first, first.get('kept')) == (earlier is not None, None)
        submit(application, started, waiting)
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 0
        application.until(lambda: (application.pilots[-1].info or {}).get('kept') is not None, 'what the agent keeps')
        last = application.pilots[-1].info
        assert last is not None
        assert set(last['kept']) <= set(started)


def test_tasks_are_returned_at_a_command(tmp_path: Path) -> None:
    started, waiting, own, late = uids(2), uids(3, 2), uids(1, 5), uids(2, 6)
    with real(tmp_path) as (application, agent):
        submit(application, started, waiting, own)
        application.command(cmd='return_tasks', uids=[*started, *waiting, *own, *late])
        application.until(lambda: {uid for uid, update in application.tasks.items()
                                   if (update.info or {}).get('returned') == PILOT} == {*waiting}, 'what is returned')
        application.submit(late, **SLEEP)   # the command was faster
        application.command(cmd='cancel_tasks', uids=[*started, *own])
        application.until_left([*started, *own])
        application.until(lambda: {uid for uid, update in application.tasks.items()
                                   if (update.info or {}).get('returned') == PILOT} == {*waiting, *late}, 'the rest')
        application.command(cmd='cancel_pilot', reason='cancelled')
        assert agent.wait() == 0
        assert {uid: application.tasks[uid].state for uid in (*waiting, *late)} == dict.fromkeys(
            [*waiting, *late], states.AGENT_SCHEDULING)
