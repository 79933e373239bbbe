"""What tasks leave behind ends with them, in whole pilots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from leftovers import must_end

import radical.pilot as rp

LEAVES = '''
sleep 1000 &
echo $! >>pids
(setsid sh -c 'echo $$ >>pids; exec sleep 1000' </dev/null >/dev/null 2>&1 &)
until test "$(wc -l <pids)" = 2; do :; done
'''

SUB_AGENT = {'agents': {'agent_1': {'components': {'agent_executing': {'count': 1}}}}}
PROCESS = {'components': {'agent_executing': {'target': 'process'}}}


@pytest.mark.parametrize(('config', 'spawner'), [
    ({}, 'POPEN'), (SUB_AGENT, 'POPEN'), (PROCESS, 'POPEN'), (SUB_AGENT, 'SHELL')],
    ids=['agent', 'sub-agent', 'process', 'SHELL in a sub-agent'])
def test_tasks_that_leave_processes(base: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any],
                                    spawner: str) -> None:
    configs = base / '.radical' / 'pilot' / 'configs'
    configs.mkdir(parents=True)
    (configs / 'resource_mine.json').write_text(json.dumps({'here': {
        'resource_manager': 'FORK', 'default_schema': 'local', 'schemas': {'local': {
            'job_manager_endpoint': 'fork://localhost/', 'filesystem_endpoint': 'file://localhost/'}},
        'agent_spawner': spawner, 'launch_methods': {'order': ['FORK'], 'FORK': {}}}}))
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(base))
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({
            'resource': 'mine.here', 'cores': 2, 'runtime': 10, 'sandbox': str(base), '_config': config})))
        tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/sh', 'arguments': [script(base)], **more})
                                   for more in ({}, {'pre_exec': ['true']}) * 2])
        tmgr.wait_tasks(timeout=60)
        assert [task.state for task in tasks] == [rp.DONE] * 4, [task.exception_detail for task in tasks]
        must_end([int(pid) for task in tasks for pid in Path(str(task.sandbox), 'pids').read_text().split()])


def script(base: Path) -> str:
    """Where the script of the tasks is."""
    path = base / 'leaves.sh'
    path.write_text(LEAVES)
    return str(path)
