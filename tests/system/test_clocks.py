"""A pilot on a host whose clock is wrong: its profiles say so, and all events are put on one clock."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import pilot_description, traces_in_order

import radical.pilot as rp
from rp_profiling.read.align import parse_sync
from rp_profiling.read.profile import read_profile
from rp_profiling.read.session import read_trace

SOURCE = Path(__file__).with_name('other_host.c')


@pytest.fixture
def other_host(tmp_path: Path) -> Path:
    """The library that makes processes live on another host."""
    compiler = shutil.which('cc')
    if compiler is None:
        (pytest.fail if 'CI' in os.environ else pytest.skip)('there is no C compiler')
    library = tmp_path / 'other_host.so'
    subprocess.run([compiler, '-shared', '-fPIC', '-O1', '-o', library, SOURCE, '-ldl'], check=True)
    return library


@pytest.mark.parametrize('ahead', [3600, -7])
def test_a_wrong_clock_is_corrected(ahead: int, other_host: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rp.Session(cfg={'base': str(base)}) as session:
        monkeypatch.setenv('LD_PRELOAD', str(other_host))   # of what is started from now on
        monkeypatch.setenv('OTHER_HOST_AHEAD', str(ahead))
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        pilot = pmgr.submit_pilots(pilot_description(base, _config={
            'agents': {'agent_1': {'components': {'agent_executing': {'count': 1}}}}}))
        tmgr.add_pilots(pilot)
        marked = rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', '$RP_PROF app_start'],
                                     'pre_exec': ['true']})
        tasks = tmgr.submit_tasks([marked, *(rp.TaskDescription({'executable': '/bin/true'}) for _ in range(4))])
        tmgr.wait_tasks(timeout=40)
        assert {task.state for task in tasks} == {rp.DONE}, [task.exception_detail for task in tasks]
    traces_in_order(session.path)
    rows = read_profile(Path(pilot.pilot_sandbox) / 'agent_0.prof')
    sync = parse_sync(rows[0].msg)
    assert sync is not None
    assert (rows[0].event, sync.host[0], sync.mode) == ('sync_abs', 'other', 'ntp')
    assert sync.ahead == pytest.approx(ahead, abs=0.5)
    moment, = (row for row in rows if row.event == 'sync_rel')
    there, = (row for row in read_profile(Path(session.path) / 'hub.prof') if row.event == 'sync_rel')
    assert (there.msg, there.uid) == (moment.msg, pilot.uid)
    assert moment.time - there.time == pytest.approx(ahead, abs=0.5)
    trace = read_trace(session.path)
    assert [remark for remark in trace.remarks if not remark.endswith('by 0.000 s, so that tasks do not arrive before '
                                                                      'they were sent')] == []
    history = [row.event for row in trace.history(tasks[0].uid)]
    assert history.index('rank_start') < history.index('app_start') < history.index('rank_stop')
    first, last = trace.span
    assert (last - first) / 1e7 < 60
