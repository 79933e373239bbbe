"""Scripts of users, written for `import radical.pilot as rp`, run as programs: what they print, and what they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import processes_with, wait_until


class Script:
    """Runs scripts in a directory of their own, in which everything goes that they write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environ = dict(os.environ) | {   # standard error has warnings only, and no report of what was cancelled
            'HOME': str(directory), 'RADICAL_BASE': str(directory), 'RADICAL_REPORT': 'FALSE'}

    def start(self, text: str) -> subprocess.Popen[str]:
        path = self.directory / 'script.py'
        path.write_text(text)
        return subprocess.Popen([sys.executable, '-W', 'error', path], cwd=self.directory, env=self.environ, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, text: str, code: int = 0, warning: str = '') -> str:
        """What a script prints; it has to end with that exit code and warning, and what it started may not live on."""
        process = self.start(text)
        try:
            out, err = process.communicate(timeout=40)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == code, (out, err)
        if code == 0:
            assert warning in err if warning else err == ''
        wait_until(lambda: not processes_with(str(self.directory)), what='the end of all that it started')
        return out


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


GETTING_STARTED = '''
#!/usr/bin/env python3

import os
import sys

import radical.pilot as rp

if __name__ == '__main__':

    # Create a new session. No need to try/except this: if session creation
    # fails, there is not much we can do anyways...
    session = rp.Session()

    try:
        pmgr = rp.PilotManager(session=session)
        tmgr = rp.TaskManager(session=session)

        pd_init = {'resource'      : 'local.exact',
                   'runtime'       : 30,  # pilot runtime (min)
                   'exit_on_error' : True,
                   'project'       : None,
                   'queue'         : None,
                   'access_schema' : 'local',
                   'cores'         : 2,
                   'gpus'          : 0}
        pdesc = rp.PilotDescription(pd_init)
        pilot = pmgr.submit_pilots(pdesc)
        tmgr.add_pilots(pilot)

        tds = list()
        for i in range(0, 16):
            td = rp.TaskDescription()
            td.executable     = '/bin/echo'
            td.arguments      = ['task', '%d' % i]
            td.ranks          = 1
            td.cores_per_rank = 1
            tds.append(td)

        tasks = tmgr.submit_tasks(tds)
        tmgr.wait_tasks()

        for task in tasks:
            print('%s: %s, %s, %s' % (task.uid, task.state, task.exit_code, task.stdout.strip()))

    finally:
        session.close(download=True)
'''


def test_getting_started(script: Script) -> None:
    lines = script.run(GETTING_STARTED).splitlines()
    assert lines == [f'task.{number:06d}: DONE, 0, task {number}' for number in range(16)]
    (path,) = script.directory.glob('rp.session.*')
    assert (path / 'pilot.0000/agent_0.prof').exists()
    assert (script.directory / 'radical.pilot.sandbox' / path.name / 'pilot.0000/task.000015/task.000015.out').exists()


CALLBACKS = '''
import threading
import warnings
import radical.pilot as rp

def pilot_state_cb(pilot, state):
    lines.append('[pilot] %s: %s' % (pilot.uid, state))
    if state in [rp.FAILED]:
        raise RuntimeError('pilot failed')

CNT = 0
lines = []

def task_state_cb(task, state, cb_data):
    global CNT
    if state == rp.AGENT_EXECUTING:
        cb_data['running'] += 1
    if state in rp.FINAL:
        CNT += 1
        lines.append('[task] %s %s: %s' % (task.uid, task.state, task.exit_code))
        if task.name == 'adaptive':
            td = rp.TaskDescription({'executable': 'true', 'name': 'next'})
            cb_data['tmgr'].submit_tasks(td)

def wait_queue_size_cb(tmgr, wait_queue_size):
    pass

with rp.Session(uid='my.test.session') as session:
    pmgr = rp.PilotManager(session)
    pmgr.register_callback(pilot_state_cb)
    pd = rp.PilotDescription()
    pd.resource = 'local.exact'
    pd.cores    = 2
    pd.runtime  = 5
    pd['sandbox'] = '$HOME/work'
    [pilot] = pmgr.submit_pilots([pd])

    tmgr = rp.TaskManager(session=session, scheduler=rp.SCHEDULER_ROUND_ROBIN)
    data = {'running': 0, 'tmgr': tmgr}
    tmgr.register_callback(task_state_cb, cb_data=data, metric=rp.TASK_STATE)
    tmgr.register_callback(wait_queue_size_cb, metric=rp.WAIT_QUEUE_SIZE)
    tmgr.add_pilots([pilot])

    pilot.wait(state=rp.PMGR_ACTIVE)
    td = rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', 'exit 3']})
    task = tmgr.submit_tasks(td)
    assert not isinstance(task, list)
    tmgr.wait_tasks(uids=task.uid, state=[rp.DONE, rp.FAILED])
    assert task.state == rp.FAILED, task.state
    print(repr(task.exception), task.exception_detail)

    td = rp.TaskDescription(from_dict={'executable': 'true', 'name': 'adaptive', 'cpu_processes': 1, 'cpu_threads': 2,
                                       'cpu_process_type': rp.POSIX, 'cpu_thread_type': rp.OpenMP,
                                       'gpu_processes': 0, 'tags': {}, 'use_mpi': False})
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')   # it uses old names
        tmgr.submit_tasks([td])
    while len(tmgr.list_tasks()) < 3:
        tmgr.wait_tasks()
    states = tmgr.wait_tasks(timeout=30)
    print(states)
    report = [tmgr.get_tasks(uid).as_dict()['exit_code'] for uid in tmgr.list_tasks()]
    print(report)
    pmgr.cancel_pilots(pilot.uid)
    print(pmgr.wait_pilots())
print('\\n'.join(lines))
print(CNT, data['running'])   # all callbacks have been called when the session is closed
'''


def test_callbacks(script: Script) -> None:
    lines = script.run(CALLBACKS).splitlines()
    pilot = ['PMGR_LAUNCHING_PENDING', 'PMGR_LAUNCHING', 'PMGR_ACTIVE_PENDING', 'PMGR_ACTIVE', 'CANCELED']
    assert [line for line in lines if line.startswith('[pilot]')] == [
        f'[pilot] pilot.0000: {state}' for state in pilot]
    assert sorted(line for line in lines if line.startswith('[task]')) == [
        '[task] task.000000 FAILED: 3', '[task] task.000001 DONE: 0', '[task] task.000002 DONE: 0']
    assert next(line for line in lines if not line.startswith('[')).endswith('exit code: 3')
    assert "['FAILED', 'DONE', 'DONE']" in lines
    assert '[3, 0, 0]' in lines
    assert lines[-1] == '3 3'
    assert (script.directory / 'work/radical.pilot.sandbox/my.test.session/pilot.0000').is_dir()


IMPORTS = '''
import warnings
import radical.pilot as rp
import radical.pilot.utils as rpu
import radical.pilot.states as rps
import radical.pilot.constants as rpc
from radical.pilot import TaskDescription, PilotDescription, Session, PilotManager, TaskManager
from radical.pilot import states, constants, utils, staging_directives, task_description, pilot_description
from radical.pilot.states import DONE, FAILED
from radical.pilot.utils.misc import get_resource_job_url
from radical.pilot.task_description import EXECUTABLE, RANKS
from unittest import mock

assert rp.states.DONE == rps.DONE == DONE == 'DONE'
assert rp.constants.TASK_STATE == rpc.TASK_STATE == rp.TASK_STATE
assert rp.FINAL == [rp.DONE, rp.FAILED, rp.CANCELED]
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter('always')
    assert rp.UMGR_SCHEDULING is rp.TMGR_SCHEDULING
assert 'use TMGR_SCHEDULING' in str(warned[0].message)
assert rp.RECURSIVE | rp.CREATE_PARENTS | rp.NON_FATAL == 7
for name in ('COPY LINK MOVE TRANSFER TARBALL DOWNLOAD DEFAULT_FLAGS CUDA OpenMP POSIX MPI TASK_EXECUTABLE '
             'TASK_SERVICE TASK_FUNCTION TASK_FUNC TASK_METHOD TASK_EVAL TASK_EXEC TASK_PROC TASK_SHELL RAPTOR_MASTER '
             'RAPTOR_WORKER PythonTask pythontask RankRequirements Slot RO Node NodeList Pilot Partition Task '
             'WAIT_QUEUE_SIZE PILOT_STATE version version_detail version_short SCHEDULER_BACKFILLING FREE').split():
    assert hasattr(rp, name), name
for name in ('LAUNCHING', 'Context'):
    assert not hasattr(rp, name), name
assert isinstance(rp.utils.serialize_bson({'a': 1}), str)
assert rp.utils.deserialize_bson(rp.utils.serialize_bson({'a': 1})) == {'a': 1}

@rp.pythontask
def hello(name):
    return 'hello ' + name
assert isinstance(hello('you'), str)

with mock.patch('radical.pilot.Session') as session, mock.patch('radical.pilot.PilotManager'):
    assert rp.Session is session
assert rp.Session is Session

td = rp.TaskDescription({'executable': 'x'})
td['no_such_thing'] = 3
assert td.get('nothing') is None and td.no_such_thing == 3
try:
    td.verify()
except KeyError as error:
    assert isinstance(error, ValueError)
    print(error)
try:
    td.neither
except (KeyError, AttributeError):
    print('unset')
print(EXECUTABLE, RANKS)
'''


def test_imports(script: Script) -> None:
    lines = script.run(IMPORTS).splitlines()
    assert 'no_such_thing' in lines[0]
    assert lines[1:] == ['unset', 'executable ranks']


CLIENT = '''
import os, sys, threading
import radical.pilot as rp

session = rp.Session()
pmgr = rp.PilotManager(session)
tmgr = rp.TaskManager(session)
pilot = pmgr.submit_pilots(rp.PilotDescription({'resource': 'local.exact', 'cores': 1, 'runtime': 5}))
tmgr.add_pilots(pilot)
task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': ['100']}))
task.wait(rp.AGENT_EXECUTING)
print(session.path, flush=True)
'''


@pytest.mark.parametrize(('end', 'code'), [
    ('', 0), ('sys.exit(7)', 7), ('raise ValueError("of the application")', 1), ('del session, pmgr, tmgr', 0),
    ('threading.Thread(target=task.wait, args=[None, 0.2]).start()', 0), ('session.close(); session.close()', 0)])
def test_script_that_ends_while_tasks_run(script: Script, end: str, code: int) -> None:
    """Closed or not, it leaves nothing."""
    path = Path(script.run(CLIENT + end, code).strip())
    assert (path / 'hub.db').exists()
    assert list(path.parent.glob('radical.pilot.sandbox/*/*/agent_0.cfg')) == []


def test_interrupted_script(script: Script) -> None:
    process = script.start(CLIENT + 'tmgr.wait_tasks()')
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=40)
    assert 'KeyboardInterrupt' in err
    assert process.returncode != 0
    wait_until(lambda: not processes_with(str(script.directory)))


def test_script_that_forks(script: Script) -> None:
    """The end of a child is not the end of the session."""
    lines = script.run(CLIENT + '''
import multiprocessing
pid = os.fork()
if pid == 0:
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
child = multiprocessing.get_context('fork').Process(target=print, args=('child',))
child.start()
child.join()
print(task.state, tmgr.submit_tasks(rp.TaskDescription({'executable': 'true'})).uid)
task.cancel()
print(tmgr.wait_tasks(timeout=30))
session.close()
''').splitlines()
    assert lines[1:] == ['child', 'AGENT_EXECUTING task.000001', "['CANCELED', 'DONE']"]


def test_script_with_a_broken_pilot(script: Script) -> None:
    """It does not wait for tasks that can never run, and says why."""
    lines = script.run('''
import radical.pilot as rp
with rp.Session() as session:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tasks = tmgr.submit_tasks([rp.TaskDescription({'executable': 'true'}) for _ in range(3)])
    tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({
        'resource': 'local.localhost_test', 'cores': 77, 'runtime': 5})))
    pmgr.wait_pilots()
    print(pmgr.get_pilots()[0].state, pmgr.get_pilots()[0].exception_detail)
    print(tmgr.wait_tasks(timeout=30), tasks[0].exception)
''', warning='the agent of pilot.0000 ended with exit code 1').splitlines()
    assert lines[0].startswith('FAILED')
    assert any('cores=77' in line for line in lines)
    assert lines[-1].startswith("['FAILED', 'FAILED', 'FAILED'] no pilot is left: pilot.0000")
