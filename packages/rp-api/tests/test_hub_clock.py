"""Agents on other hosts than the hub compare their clocks with its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_support import Agent, Site

from rp_api.coordination.connections import hub_connection
from rp_api.transport import clocks
from rp_profiling.read.profile import read_profile
from rp_profiling.write.host_clock import SAME, HostClock, Reading

SECOND = 1_000_000_000


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path).start()
    yield found
    found.close()


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Reading]:
    """What agents find out."""
    found: list[Reading] = []

    def on_clock(agent: Agent, reading: Reading) -> None:
        found.append(reading)
        agent.note('clock')

    monkeypatch.setattr(Agent, 'on_clock', on_clock)
    return found


def test_an_agent_elsewhere_learns_how_far_its_clock_is_ahead(site: Site, readings: list[Reading],
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_connection, 'host_id', lambda: 'elsewhere')
    monkeypatch.setattr(clocks, 'time_ns', lambda: time.time_ns() + 5 * SECOND)
    site.client()
    agent = site.agent('p0')
    agent.until(lambda: readings)
    reading = readings[0]
    assert abs(reading.ahead - 5 * SECOND) <= reading.within
    moment = HostClock().read(reading)
    assert moment
    agent.do(agent.connection.tell_moment, moment)
    agent.report_pilot('PMGR_ACTIVE')
    agent.until_settled()
    rows = read_profile(site.directory / 'hub.prof')
    assert [row.event for row in rows] == ['sync_abs', 'sync_rel']
    assert (rows[1].uid, rows[1].msg) == ('p0', moment.message)
    assert rows[1].time == pytest.approx(moment.there / SECOND, abs=1e-5)


def test_an_agent_on_the_host_of_the_hub_asks_nothing(site: Site, readings: list[Reading]) -> None:
    site.client()
    site.agent('p0').until(lambda: readings)
    assert readings == [SAME]
