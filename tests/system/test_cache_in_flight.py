"""Equal cached requests that are in flight in real sessions: one runs, and the others get its result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, pilot_description, wait_until

import radical.pilot as rp
from rp_api.coordination.sessions import OPEN, pilots, state_of

CAMPAIGN = """
import sys
import radical.pilot as rp

with rp.Session() as session:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription(resource='local.exact', cores=2, runtime=10)))
    sweep = tmgr.submit_sweep(rp.TaskDescription(
        executable='/bin/sh', cache=True, literal_arguments=True, arguments=['-c', sys.argv[1], '{}'],
        output_staging=['out > out.{}']), range(8))
    print(sweep.wait(), flush=True)
"""

STEP = 'echo started >> {base}/log.$0; while [ ! -e {base}/go ]; do sleep 0.05; done; echo $0 > out'


def start(base: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, '-c', CAMPAIGN, STEP.replace('{base}', str(base))], text=True,
                            stdout=subprocess.PIPE)


def test_killed_campaign_and_its_rerun_share_the_tasks(base: Path) -> None:
    """What the pilot of the first one has runs there, although no application attaches to its session."""
    with start(base) as killed:
        wait_until(lambda: len(list(base.glob('log.*'))) == 2)
        killed.kill()
    left, = base.glob('rp.session.*')
    with start(base) as rerun, start(base) as beside:
        (base / 'go').touch()
        for campaign in (rerun, beside):
            output, _ = campaign.communicate(timeout=100)
            assert output == "{'DONE': 8}\n"
    wait_until(lambda: state_of(left) != OPEN)   # the process that has attached may be about to end
    rp.Session(uid=left.name, cfg={'base': str(base)}).close()   # otherwise it waits for an application for a while
    assert [(base / f'log.{number}').read_text() for number in range(8)] == ['started\n'] * 8
    assert [(base / f'out.{number}').read_text() for number in range(8)] == [f'{number}\n' for number in range(8)]


def test_equal_tasks_of_a_session_run_once(run: Run, base: Path) -> None:
    other = rp.TaskManager(run.session)
    other.add_pilots(rp.PilotManager(run.session).submit_pilots(pilot_description(base)))
    description = rp.TaskDescription({'executable': '/bin/sh', 'cache': True, 'arguments': [
        '-c', f'echo >> {base}/ran; sleep 0.2; echo done; test -e {base}/ran']})
    tasks = [*run.tmgr.submit_tasks([description] * 5), *other.submit_tasks([description] * 5)]
    assert [task.wait(timeout=60) for task in tasks] == [rp.DONE] * 10
    assert [task.stdout for task in tasks] == ['done\n'] * 10
    assert (base / 'ran').read_text() == '\n'
    assert [task.cached for task in tasks].count(False) == 1


def test_equal_calls_of_executors_run_once(base: Path) -> None:
    def noted(path: str, value: Any) -> Any:
        with open(path, 'a') as file:
            file.write('\n')
        if value == 'wrong' and os.path.getsize(path) != 2:
            raise ValueError(value)
        return value

    with rp.Executor(cores=2) as one, rp.Executor(cores=1) as other:
        right = [executor.options(cache=True).submit(noted, str(base / 'right'), 1) for executor in (one, other) * 3]
        wrong = [one.options(cache=True).submit(noted, str(base / 'wrong'), 'wrong') for _ in range(3)]
        assert [future.result(timeout=100) for future in right] == [1] * 6
        assert isinstance(wrong[0].exception(timeout=100), ValueError)
        assert [future.result(timeout=100) for future in wrong[1:]] == ['wrong'] * 2
    assert (base / 'right').read_text() == '\n'
    assert (base / 'wrong').read_text() == '\n\n'   # the second one ran when the first one had failed


EXECUTOR = """
import sys
import radical.pilot as rp

def noted(path):
    with open(path, 'a') as file:
        file.write('called ')
    return 7

with rp.Executor(cores=2, uid='camp') as ex:
    futures = [ex.run('sh', '-c', sys.argv[1], number) for number in range(6)]
    futures += [ex.run('sh', '-c', 'echo twice >> ' + sys.argv[2] + '/log.twice') for _ in range(2)]
    if len(sys.argv) > 3:
        print(sum(int(future.result().stdout or 0) for future in futures), ex.submit(noted, sys.argv[3]).result())
    ex.shutdown()
"""


def test_executor_of_the_same_uid_goes_on_with_its_programs(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(base))   # the sandboxes of `camp` are below it
    step = STEP.replace('{base}', str(base)).replace('> out', '')
    words = [sys.executable, '-c', EXECUTOR, step, str(base)]
    with subprocess.Popen(words) as killed:
        wait_until(lambda: len(list(base.glob('log.*'))) == 2)
        killed.kill()
    (base / 'go').touch()
    done = subprocess.run([*words, str(base / 'called')], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == '15 7\n'
    assert [(base / f'log.{number}').read_text() for number in range(6)] == ['started\n'] * 6
    assert (base / 'log.twice').read_text() == 'twice\n' * 2
    assert {record['uid'] for record in pilots(base / 'camp')} == {'pilot.0000'}
