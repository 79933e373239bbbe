"""Agents whose pilots were declared lost end, with their tasks: at the latest when the session is closed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from conftest import processes_with, wait_until
from losing import LEASE, lose, lost_and_left, with_a_task

import radical.pilot as rp

pytestmark = [pytest.mark.fault, pytest.mark.disorder('agents end in the middle of their work')]

RESOURCE = 'local.exact'


@pytest.mark.parametrize('goes_on', [False, True])
def test_lost_agent_ends_with_the_session(base: Path, goes_on: bool) -> None:
    """Whether it is still stopped, or has just been continued."""
    with rp.Session(cfg=LEASE) as session:
        agent = lose(session, with_a_task(session, RESOURCE))
        if goes_on:
            os.kill(agent, signal.SIGCONT)
    assert processes_with(str(base)) == {}


def test_lost_agent_ends_when_it_goes_on(base: Path) -> None:
    with rp.Session(cfg=LEASE) as session:
        pilot = with_a_task(session, RESOURCE)
        os.kill(lose(session, pilot), signal.SIGCONT)
        log = Path(pilot.pilot_sandbox, 'agent_0.log')
        wait_until(lambda: 'the pilot ends as FAILED: is FAILED already' in log.read_text())
    assert processes_with(str(base)) == {}


def test_lost_agent_of_an_application_that_has_died(base: Path) -> None:
    """The next application knows the pilot as one that has ended, and ends the agent all the same."""
    agent = lost_and_left(RESOURCE)
    assert agent in processes_with(str(base))
    with rp.Session(uid='session', cfg=LEASE) as session:
        assert session.get_pilot_managers('pmgr.0000').get_pilots('pilot.0000').state == rp.FAILED
    assert processes_with(str(base)) == {}
