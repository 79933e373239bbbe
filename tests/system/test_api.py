"""The five classes that applications use: what each method gives, and what each mistake is answered with."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import Run, pilot_description, wait_until

import radical.pilot as rp
from rp_api.errors import (
    AttributeTypeError,
    AttributeUnknown,
    CoordinationError,
    DescriptionError,
    PlatformError,
    StateError,
)
from rp_client.flow.launching import PilotLaunching

TRUE = rp.TaskDescription({'executable': '/bin/true'})


def sleeping(**values: Any) -> rp.TaskDescription:
    return rp.TaskDescription({'executable': '/bin/sleep', 'arguments': ['100']} | values)


def managers(session: rp.Session) -> tuple[rp.PilotManager, rp.TaskManager]:
    return rp.PilotManager(session=session), rp.TaskManager(session=session)


def active(pilot: rp.Pilot) -> rp.Pilot:
    assert pilot.wait(rp.PMGR_ACTIVE, timeout=30) == rp.PMGR_ACTIVE, (pilot.exception, pilot.stderr)
    return pilot


def sandbox_pids(task: rp.Task) -> list[int]:
    """The processes that run in a task's sandbox."""
    found = []
    for name in filter(str.isdigit, os.listdir('/proc')):
        try:
            if os.readlink(f'/proc/{name}/cwd') == task.sandbox:
                found.append(int(name))
        except OSError:   # it has ended
            continue
    return found


# Session


def test_session_uid_and_directories(base: Path) -> None:
    with rp.Session() as first, rp.Session() as second:
        pattern = r'rp\.session\.[^.]+\.[^.]+\.\d{6}\.\d{4}-[0-9a-f]{16}'
        assert re.fullmatch(pattern, first.uid)
        assert re.fullmatch(pattern, second.uid)
        assert first.uid != second.uid
        assert first.base == str(base)
        assert first.path == f'{base}/{first.uid}'
        assert stat.S_IMODE(os.stat(first.path).st_mode) == 0o700
        assert not first.closed
    assert (first.closed, second.closed) == (True, True)


def test_session_uid_of_the_application(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rp.Session(uid='my.session') as session:
        assert session.uid == 'my.session'
        assert session.path == f'{base}/my.session'
    with pytest.warns(DeprecationWarning, match=r'use Session\(uid=\)') as warned, rp.Session(name='old') as session:
        assert session.uid == 'old'
    assert [warning.filename for warning in warned] == [__file__]
    monkeypatch.setenv('RADICAL_PILOT_SID_BASE', 'from.environment')
    with rp.Session() as session:
        assert re.fullmatch(r'from\.environment\.\d{4}', session.uid)


@pytest.mark.disorder('two sessions with the same uids have written to the same profiles')
def test_session_of_an_earlier_run_is_not_mixed_up_with_a_new_one(base: Path) -> None:
    """A script with a fixed session uid can be run again: its tasks run again, and the old results are kept."""
    for words in ('first', 'second'):
        with rp.Session(uid='again') as session:
            pmgr, tmgr = managers(session)
            tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
            task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'echo', 'arguments': [words]}))
            assert task.wait(timeout=30) == rp.DONE
            assert task.stdout == f'{words}\n'
    assert {path.name for path in Path(session.path).glob('hub.db*')} == {'hub.db', 'hub.db.1'}


def test_sessions_do_not_share_a_directory(base: Path) -> None:
    """A session that an application has open cannot be attached, and does not suffer from the attempt."""
    with rp.Session(uid='same') as session:
        with pytest.raises(CoordinationError, match=f'process {os.getpid()}|another session is active'):
            rp.Session(uid='same')
        assert session.list_resources()


def test_session_cfg(base: Path) -> None:
    with rp.Session(cfg={'base': str(base / 'here'), 'client_sandbox': str(base / 'client')}) as session:
        assert session.path == f'{base}/here/{session.uid}'
        assert session.client_sandbox == f'{base}/client'
        assert session.cfg['base'] == session.base == f'{base}/here'
        assert session.cfg['sid'] == session.uid
    with rp.Session(cfg={'path': str(base / 'exactly')}) as session:
        assert session.path == f'{base}/exactly'


@pytest.mark.parametrize(('values', 'error', 'words'), [
    ({'cfg': {'bases': '/tmp'}}, ValueError, "'bases'.*base, path, client_sandbox"),
    ({'dburl': 'mysql://me:secret@there'}, ValueError, 'dburl must start with mongodb://.*not with mysql://'),
    ({'proxy_url': 'http://there'}, ValueError, 'proxy_url must start with tcp://.*not with http://'),
    ({'proxy_url': 'there'}, ValueError, 'proxy_url must start with tcp://'),
    ({'dburl': 'mongodb://there', 'proxy_url': 'tcp://there:1'}, ValueError, 'one of them'),
    ({'cfg': {'heartbeat': 7}}, TypeError, 'heartbeat'), ({'cfg': {'heartbeat': {'lease': 7}}}, ValueError, "'lease'"),
    ({'cfg': {'heartbeat': {'timeout': 0}}}, ValueError, 'above 0'),
    ({'cfg': {'hub': {'listen': 'tcp://*:7'}}}, ValueError, 'listen'),
    ({'cfg': {'hub': {'listen': 'ipc:///x'}}}, ValueError, 'listen'),
    ({'cfg': {'hub': {'port': 7}}}, ValueError, "'port'.*listen, address"),
    ({'cfg': {'hub': {'listen': 'tcp://lo'}}, 'dburl': 'mongodb://x'}, ValueError, 'dburl'),
    ({'cfg': {'hub': {'listen': 'tcp://lo'}}, 'proxy_url': 'tcp://x:1'}, ValueError, 'such a session starts no hub'),
    ({'cfg': 7}, TypeError, 'cfg'), ({'downlod': True}, ValueError, "'downlod'.*download, terminate, cleanup"),
    ({'orphan_timeout': -1}, ValueError, 'orphan_timeout'),
    ({'uid': 'a/b'}, ValueError, "'a/b'"), ({'uid': '..'}, ValueError, 'uid'), ({'uid': 'a b'}, ValueError, 'uid'),
    ({'uid': 7}, ValueError, 'a string, not 7'), ({'uid': 'a', 'name': 'a'}, ValueError, "old name of uid.*'a'")])
def test_session_refuses(base: Path, values: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        rp.Session(**values)
    assert os.listdir(base) == []


@pytest.mark.parametrize(('name', 'words'), [('RADICAL_PILOT_DBURL', 'dburl'),
                                             ('RADICAL_PILOT_PROXY_URL', 'proxy_url')])
def test_session_refuses_what_the_environment_says(base: Path, monkeypatch: pytest.MonkeyPatch, name: str,
                                                   words: str) -> None:
    monkeypatch.setenv(name, 'http://me:secret@there')
    with pytest.raises(ValueError, match=words) as error:
        rp.Session()
    assert 'secret' not in str(error.value)


def test_session_tells_where_it_is_coordinated(session: rp.Session) -> None:
    assert session.proxy_url == session.reg_addr
    assert session.reg_addr.startswith('ipc://')


def test_session_close_options(session: rp.Session) -> None:
    with pytest.raises(ValueError, match="'donwload' is unknown; the options for closing are: download, terminate"):
        session.close(donwload=True)
    assert not session.closed
    session.close(download=False, terminate=True, cleanup=True)
    session.close(download=True)
    session.close()
    assert session.closed


def test_session_is_closed_by_an_exception(base: Path) -> None:
    sessions, pilots = [], []

    def fail() -> None:
        with rp.Session() as session:
            sessions.append(session)
            pilots.append(rp.PilotManager(session).submit_pilots(pilot_description(base)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert sessions[0].closed
    assert pilots[0].state == rp.CANCELED


def test_session_download(run: Run) -> None:
    assert run.one(executable='/bin/true').state == rp.DONE
    run.session.close(download=True)
    fetched = os.listdir(Path(run.session.path) / run.pilot.uid)
    assert {'agent_0.prof', 'agent_0.log', 'agent_0.out', 'agent_0.err', 'agent_executing.0000.prof'} <= set(fetched)
    assert {f'{run.session.uid}.json', 'pmgr.0000.json', 'tmgr.0000.json'} <= set(os.listdir(run.session.path))


def test_session_fetch(run: Run, base: Path) -> None:
    assert run.one(executable='/bin/true').state == rp.DONE
    run.pilot.cancel()
    profiles = run.session.fetch_profiles(tgt=str(base / 'there'))
    assert f'{base}/there/{run.pilot.uid}/agent_0.prof' in profiles
    assert all(Path(path).exists() for path in profiles)
    logs = run.session.fetch_logfiles()
    assert f'{run.session.path}/{run.pilot.uid}/agent_0.log' in logs


@pytest.mark.parametrize('manager', [rp.PilotManager, rp.TaskManager])
@pytest.mark.parametrize('wrong', [None, 'rp.session.0000', rp.Session], ids=['None', 'uid', 'class'])
def test_managers_are_made_with_a_session(manager: Any, wrong: object) -> None:
    with pytest.raises(TypeError, match=re.escape(f'a manager is made with a Session, not with {wrong!r}')):
        manager(wrong)


def test_session_lists_managers(session: rp.Session) -> None:
    assert session.list_pilot_managers() == session.list_task_managers() == []
    assert session.get_pilot_managers() == session.get_task_managers() == []
    one, other = managers(session), managers(session)
    pmgrs, tmgrs = (one[0], other[0]), (one[1], other[1])
    assert session.list_pilot_managers() == [pmgr.uid for pmgr in pmgrs] == ['pmgr.0000', 'pmgr.0001']
    assert session.list_task_managers() == [tmgr.uid for tmgr in tmgrs] == ['tmgr.0000', 'tmgr.0001']
    lists: tuple[tuple[Callable[..., Any], Any], ...] = (
        (session.get_pilot_managers, pmgrs), (session.get_task_managers, tmgrs))
    for get, known in lists:
        assert get() == get(None) == list(known)
        assert get(known[1].uid) is known[1]
        assert get([known[1].uid, known[0].uid]) == [known[1], known[0]]
        assert get([]) == []
        for unknown in ('xmgr.0000', ['xmgr.0000']):
            with pytest.raises(KeyError):
                get(unknown)


def test_session_knows_platforms(session: rp.Session) -> None:
    labels = session.list_resources()
    assert labels == sorted(labels)
    assert 'local.exact' in labels
    config = session.get_resource_config('local.exact')
    assert config.label == 'local.exact'
    assert config.resource_manager == 'FORK'
    assert session.rcfgs['local']['localhost'].resource_manager == 'FORK'
    assert session.get_resource_config('local.exact', 'local').job_manager_endpoint
    for label, schema, words in (('local.localhots', None, 'local.localhost'), ('nowhere', None, 'nowhere'),
                                 ('local.exact', 'ssh', "'ssh'.*local")):
        with pytest.raises(PlatformError, match=words):
            session.get_resource_config(label, schema)


def test_session_as_plain_data(run: Run) -> None:
    session = run.session
    with pytest.raises(TypeError):
        session.inject_metadata('words')   # type: ignore[arg-type]
    session.inject_metadata({'campaign': 7})
    data = session.as_dict()
    assert data['uid'] == session.uid
    assert data['cfg'] == session.cfg
    assert data['metadata'] == {'campaign': 7}
    task = run.one(executable='/bin/true')
    session.dump()
    session.dump('named')
    for name in (session.uid, 'pmgr.0000', 'tmgr.0000'):
        path = Path(session.path)
        first, second = (json.loads((path / f'{name}{end}').read_text()) for end in ('.json', '.named.json'))
        assert first['uid'] == second['uid'] == name
    assert first['tasks'][task.uid]['state'] == rp.DONE
    assert json.loads((path / 'pmgr.0000.json').read_text())['pilots'][0]['uid'] == run.pilot.uid


def test_use_after_close(run: Run) -> None:
    task = run.one(executable='/bin/true')
    running = run.tmgr.submit_tasks(sleeping())
    running.wait(rp.AGENT_EXECUTING, timeout=30)
    run.session.close()
    for call in (lambda: rp.PilotManager(run.session), lambda: rp.TaskManager(run.session),
                 lambda: run.tmgr.submit_tasks(TRUE), lambda: run.pmgr.submit_pilots(pilot_description(Path('/tmp')))):
        with pytest.raises(RuntimeError, match='closed'):
            call()
    # what was learnt can still be read, and there is nothing left to wait for or to cancel
    assert (task.state, task.exit_code, running.state, run.pilot.state) == (rp.DONE, 0, rp.CANCELED, rp.CANCELED)
    assert run.tmgr.wait_tasks() == [rp.DONE, rp.CANCELED]
    assert run.pmgr.wait_pilots() == [rp.CANCELED]
    assert running.wait() == run.pilot.wait() == rp.CANCELED
    run.tmgr.cancel_tasks()
    running.cancel()
    run.pilot.cancel()
    run.pmgr.kill_pilots()
    run.tmgr.close()
    run.pmgr.close()
    assert run.session.as_dict()['uid'] == run.session.uid
    assert run.pilot.as_dict()['state'] == rp.CANCELED


def test_two_sessions_at_a_time(base: Path) -> None:
    with rp.Session() as one, rp.Session() as other:
        tasks = []
        for session in (one, other):
            pmgr, tmgr = managers(session)
            tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
            tasks.append(tmgr.submit_tasks(TRUE))
        assert [task.wait(timeout=30) for task in tasks] == [rp.DONE, rp.DONE]
        assert tasks[0].uid == tasks[1].uid
        one.close()
        assert tmgr.submit_tasks(TRUE).wait(timeout=30) == rp.DONE


def test_sessions_of_the_same_name_do_not_touch_each_other(base: Path) -> None:
    """Uids are the user's, and two directories can have a session each of the same uid."""
    running = []
    with (rp.Session(uid='twin', cfg={'base': str(base / 'a')}) as one,
          rp.Session(uid='twin', cfg={'base': str(base / 'b')}) as other):
        for session, name in ((one, 'a'), (other, 'b')):
            pmgr, tmgr = managers(session)
            tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base / name)))
            running.append(tmgr.submit_tasks([sleeping(), sleeping()]))
            tmgr.wait_tasks(state=rp.AGENT_EXECUTING, timeout=30)
        running[0][0].cancel()
        assert running[0][0].wait(timeout=30) == rp.CANCELED
        one.get_pilot_managers()[0].kill_pilots()
        one.close()
        assert [task.state for task in running[1]] == [rp.AGENT_EXECUTING] * 2
        assert all(sandbox_pids(task) for task in running[1])
        assert tmgr.submit_tasks(TRUE).wait(timeout=30) == rp.DONE
        assert [task.state for task in running[1]] == [rp.AGENT_EXECUTING] * 2


# PilotManager and Pilot


def test_pilot_life(session: rp.Session, base: Path) -> None:
    pmgr = rp.PilotManager(session)
    description = pilot_description(base, cores=2, gpus=1)
    before = description.as_dict()
    pilot = pmgr.submit_pilots(description)
    assert description.as_dict() == before
    assert isinstance(pilot, rp.Pilot)
    assert (pilot.uid, pilot.resource) == ('pilot.0000', 'local.exact')
    assert (pilot.pmgr, pilot.session) == (pmgr, session)
    active(pilot)
    assert pilot.resources == {'cpu': 2, 'gpu': 1}
    details = pilot.resource_details or {}
    assert pilot.nodelist
    assert (len(details['node_list']), details['cores_per_node'], details['gpus_per_node']) == (1, 2, 1)
    assert [len(node['cores']) for node in details['node_list']] == [2]
    assert len(pilot.nodelist.nodes) == 1
    assert pilot.pilot_sandbox == f'{base}/radical.pilot.sandbox/{session.uid}/{pilot.uid}'
    assert pilot.session_sandbox == str(Path(pilot.pilot_sandbox).parent)
    assert pilot.resource_sandbox == str(Path(pilot.session_sandbox).parent)
    assert (pilot.client_sandbox, pilot.endpoint_fs) == (session.client_sandbox, '/')
    assert stat.S_IMODE(os.stat(f'{pilot.pilot_sandbox}/agent_0.cfg').st_mode) == 0o600
    assert stat.S_IMODE(os.stat(pilot.pilot_sandbox).st_mode) == 0o700
    assert pilot.exception is None
    for text in (pilot.uid, 'local.exact', rp.PMGR_ACTIVE):
        assert text in str(pilot)
    pilot.cancel()
    assert pilot.state == rp.CANCELED
    assert any('cancelled' in line for line in pilot.log)
    pilot.cancel()
    assert not Path(f'{pilot.pilot_sandbox}/agent_0.cfg').exists()


def test_pilot_before_it_is_active(session: rp.Session, base: Path) -> None:
    pilot = rp.PilotManager(session).submit_pilots(pilot_description(base))
    if pilot.state != rp.PMGR_ACTIVE:
        assert (pilot.resources, pilot.resource_details, pilot.nodelist) in [(None, None, None)] or pilot.wait(
            rp.PMGR_ACTIVE, timeout=20)
    pilot.cancel()
    assert pilot.state == rp.CANCELED


def test_pilot_description_comes_back(shared: Run) -> None:
    description = shared.pilot.description
    assert isinstance(description, dict)
    assert (description['cores'], description.get('gpus'), description['uid']) == (4, 2, shared.pilot.uid)
    description['cores'] = 7
    assert shared.pilot.description['cores'] == 4


def test_pilot_as_plain_data(shared: Run) -> None:
    data = json.loads(json.dumps(shared.pilot.as_dict()))
    assert {'session', 'pmgr', 'uid', 'type', 'state', 'log', 'stdout', 'stderr', 'resource', 'resources',
            'endpoint_fs', 'resource_sandbox', 'session_sandbox', 'pilot_sandbox', 'client_sandbox', 'description',
            'resource_details', 'nodelist'} <= set(data)
    assert (data['type'], data['uid'], data['state']) == ('pilot', shared.pilot.uid, rp.PMGR_ACTIVE)
    assert data['description']['cores'] == data['resources']['cpu'] == 4


def test_pilots_of_a_list(session: rp.Session, base: Path) -> None:
    pmgr = rp.PilotManager(session)
    (one,) = pmgr.submit_pilots([pilot_description(base, cores=1)])
    mapping = cast(rp.PilotDescription, dict(pilot_description(base, nodes=1, cores=0)))
    two, three = pmgr.submit_pilots([pilot_description(base, cores=1, uid='mine'), mapping])
    assert pmgr.list_pilots() == [one.uid, 'mine', three.uid]
    assert pmgr.get_pilots() == pmgr.get_pilots(None) == [one, two, three]
    assert pmgr.get_pilots('mine') is two
    assert pmgr.get_pilots(['mine']) == [two]
    with pytest.raises(ValueError, match='nope'):
        pmgr.get_pilots('nope')
    with pytest.raises(ValueError, match='nope'):
        pmgr.get_pilots([one.uid, 'nope'])
    assert pmgr.wait_pilots(state=rp.PMGR_ACTIVE, timeout=30) == [rp.PMGR_ACTIVE] * 3
    assert three.resources['cpu'] == len(os.sched_getaffinity(0))
    pmgr.cancel_pilots('mine')
    assert pmgr.wait_pilots('mine') == rp.CANCELED
    pmgr.kill_pilots([one.uid])
    assert pmgr.wait_pilots([one.uid, 'mine']) == [rp.CANCELED] * 2
    assert three.state == rp.PMGR_ACTIVE
    for call in (pmgr.wait_pilots, pmgr.cancel_pilots, pmgr.kill_pilots):
        with pytest.raises(ValueError, match='nope'):
            call('nope')
    pmgr.cancel_pilots()
    assert pmgr.wait_pilots() == [rp.CANCELED] * 3


def test_wait_for_pilots(shared: Run) -> None:
    """A state that was passed counts; the default is any final state; what is given comes back as it came."""
    pmgr, pilot = shared.pmgr, shared.pilot
    for state in (rp.PMGR_ACTIVE, rp.PMGR_LAUNCHING, [rp.PMGR_LAUNCHING], [rp.DONE, rp.PMGR_LAUNCHING], rp.NEW):
        assert pilot.wait(state) == pmgr.wait_pilots(pilot.uid, state) == rp.PMGR_ACTIVE
        assert pmgr.wait_pilots([pilot.uid], state=state) == [rp.PMGR_ACTIVE]
    assert pilot.wait(timeout=0.01) == pmgr.wait_pilots(pilot.uid, timeout=0.01) == rp.PMGR_ACTIVE
    assert pilot.wait([rp.DONE, rp.FAILED], timeout=0.01) == rp.PMGR_ACTIVE
    with pytest.raises(StateError, match='PMGR_ACTIV'):
        pilot.wait('PMGR_ACTIV', timeout=1)


@pytest.mark.parametrize(('values', 'error', 'words'), [
    ({'nodes': 1}, DescriptionError, 'nodes.*cores'), ({'runtime': 0}, DescriptionError, 'runtime.*1 or more'),
    ({'cores': 0}, DescriptionError, 'nodes and cores'), ({'resource': None}, DescriptionError, 'resource'),
    ({'cores': -1}, DescriptionError, 'cores is -1'), ({'cores': 'many'}, AttributeTypeError, "cores.*'many'"),
    ({'coers': 1}, AttributeUnknown, 'coers.*cores'), ({'uid': 'a/b'}, DescriptionError, 'uid'),
    ({'resource': 'local.localhots'}, PlatformError, 'local.localhots.*local.localhost'),
    ({'resource': 'local'}, PlatformError, "'local'"), ({'access_schema': 'ssh'}, PlatformError, 'ssh.*local'),
    ({'sandbox': 'relative'}, ValueError, 'relative.*absolute'), ({'sandbox': '$NO_SUCH/x'}, ValueError, 'NO_SUCH'),
    ({'services': [{'arguments': ['x']}]}, ValueError, 'executable'),
    ({'prepare_env': {'x': {'type': 'nix'}}}, DescriptionError, "'x'.*'nix'"),
    ({'app_comm': ['x']}, ValueError, 'app_comm'), ({'backup_nodes': 1}, DescriptionError, 'backup_nodes')])
def test_pilot_description_is_refused(shared: Run, base: Path, values: dict[str, Any], error: type[Exception],
                                      words: str) -> None:
    """At the call, whole: no pilot of the list is submitted."""
    good = pilot_description(base, uid='good')
    known = shared.pmgr.list_pilots()
    for wanted in (pilot_description(base, **values), [good, pilot_description(base, **values)]):
        with pytest.raises(error, match=words):
            shared.pmgr.submit_pilots(wanted)
    assert shared.pmgr.list_pilots() == known


def test_other_things_are_no_pilot_descriptions(shared: Run) -> None:
    with pytest.raises(ValueError, match='at least one'):
        shared.pmgr.submit_pilots([])
    wrongs: list[Any] = [None, 7, 'local.exact', [None], [shared.pilot]]
    for wrong in wrongs:
        named = wrong[0] if isinstance(wrong, list) else wrong
        with pytest.raises(AttributeTypeError, match=re.escape(f'pilot descriptions are needed, not {named!r}')):
            shared.pmgr.submit_pilots(wrong)


def test_pilot_uids_are_unique(shared: Run, base: Path) -> None:
    known = shared.pmgr.list_pilots()
    same = pilot_description(base, uid='same')
    for wanted in ([same, same], [same, pilot_description(base, uid=shared.pilot.uid)]):
        with pytest.raises(ValueError, match='unique'):
            shared.pmgr.submit_pilots(wanted)
    assert shared.pmgr.list_pilots() == known
    with pytest.raises(ValueError, match=shared.pilot.uid):
        rp.PilotManager(shared.session).submit_pilots(pilot_description(base, uid=shared.pilot.uid))
    assert not shared.pmgr.check_uid(shared.pilot.uid)
    assert shared.pmgr.check_uid('pilot.of.nobody')


def test_made_up_pilot_uids_avoid_those_of_the_application(session: rp.Session, base: Path) -> None:
    pmgr = rp.PilotManager(session)
    pilots = [pmgr.submit_pilots(pilot_description(base, cores=1, uid=uid)) for uid in ('pilot.0000', None)]
    assert len({pilot.uid for pilot in pilots}) == 2


def test_pilot_that_cannot_be_had(session: rp.Session, base: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It fails with a sentence, which the application also finds on its standard error."""
    pmgr, tmgr = managers(session)
    pilot = pmgr.submit_pilots(pilot_description(base, resource='local.localhost_test', cores=99))
    tmgr.add_pilots(pilot)
    task = tmgr.submit_tasks(TRUE)
    assert pilot.wait(timeout=30) == rp.FAILED
    said = f'{pilot.exception} {pilot.exception_detail}'
    assert 'cores=99' in said
    assert pilot.pilot_sandbox in said
    assert task.wait(timeout=30) == rp.FAILED
    assert pilot.uid in f'{task.exception}'
    assert 'pilot.0000' in wait_until(lambda: capfd.readouterr().err)


def test_pilot_that_cannot_be_launched(session: rp.Session, base: Path) -> None:
    (base / 'radical.pilot.sandbox').touch()
    pilot = rp.PilotManager(session).submit_pilots(pilot_description(base))
    assert pilot.wait(timeout=30) == rp.FAILED
    assert f'{base}/radical.pilot.sandbox' in f'{pilot.exception}'


def test_tasks_wait_on_if_failed_pilots_may_be_replaced(session: rp.Session, base: Path,
                                                        capfd: pytest.CaptureFixture[str]) -> None:
    pmgr, tmgr = managers(session)
    failing = pmgr.submit_pilots(pilot_description(base, resource='local.localhost_test', cores=99, uid='failing',
                                                   exit_on_error=False))
    assert failing.wait(timeout=30) == rp.FAILED
    task = tmgr.submit_tasks(TRUE)
    tmgr.add_pilots(failing)
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    assert task.wait(timeout=30) == rp.DONE
    assert 'failing' not in capfd.readouterr().err


def test_pilot_sandbox_is_removed_on_request(session: rp.Session, base: Path) -> None:
    pilot = active(rp.PilotManager(session).submit_pilots(pilot_description(base, cleanup=True)))
    assert Path(pilot.pilot_sandbox).exists()
    pilot.cancel()
    wait_until(lambda: not Path(pilot.pilot_sandbox).exists())


def test_closing_a_pilot_manager_ends_its_pilots_only(session: rp.Session, base: Path) -> None:
    one, other = rp.PilotManager(session), rp.PilotManager(session)
    pilots = [pmgr.submit_pilots(pilot_description(base, cores=1)) for pmgr in (one, other)]
    for pilot in pilots:
        active(pilot)
    one.close()
    one.close()
    assert [pilot.state for pilot in pilots] == [rp.CANCELED, rp.PMGR_ACTIVE]
    with pytest.raises(RuntimeError, match='closed'):
        one.submit_pilots(pilot_description(base))


def test_runtime_of_a_pilot_is_over(session: rp.Session, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pilot is DONE; tasks that still run fail, the others wait for another pilot, and all say why."""
    config = PilotLaunching._config
    monkeypatch.setattr(PilotLaunching, '_config', lambda *args: config(*args) | {'runtime': 3 / 60})
    pmgr, tmgr = managers(session)
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    tasks = tmgr.submit_tasks([sleeping() for _ in range(6)])
    assert pilot.wait(timeout=30) == rp.DONE
    assert pilot.exception is None
    assert any('runtime' in line for line in pilot.log)
    waiting = tasks[4:]
    for task in tasks[:4]:
        assert task.wait(timeout=30) == rp.FAILED
        assert (task.error and task.error.kind, 'runtime' in str(task.exception)) == ('pilot', True)
    wait_until(lambda: all(task.pilot is None for task in waiting))
    assert all('another pilot: pilot.0000 reached its runtime' in str(task.reason) for task in waiting)


def test_applications_place_tasks(shared: Run) -> None:
    """The way in which applications do the scheduling: slots from the node list, given back in a callback."""
    nodes, gone = shared.pilot.nodelist, threading.Event()
    assert nodes

    def release(task: rp.Task, state: str) -> None:
        if state in rp.FINAL:
            nodes.release_slots(task.slots or ())
            gone.set()

    slots = nodes.find_slots(rp.RankRequirements(n_cores=2), n_slots=2)
    assert nodes.find_slots(rp.RankRequirements(n_cores=1), n_slots=1) is None
    task = shared.tmgr.submit_tasks(sleeping(slots=slots, ranks=2, cores_per_rank=2, use_mpi=False))
    task.register_callback(release)
    assert task.wait(rp.AGENT_EXECUTING, timeout=30) == rp.AGENT_EXECUTING
    task.cancel()
    assert task.wait(timeout=30) == rp.CANCELED
    assert gone.wait(30)
    assert nodes.find_slots(rp.RankRequirements(n_cores=1), n_slots=4) is not None
    with pytest.raises(ValueError, match='never'):
        nodes.find_slots(rp.RankRequirements(n_cores=9))


# TaskManager and Task


def test_task_life(shared: Run) -> None:
    description = rp.TaskDescription({'executable': '/bin/sh', 'arguments': ['-c', 'echo out; echo err >&2'],
                                      'name': 'me', 'metadata': {'a': [1]}})
    before = description.as_dict()
    task = shared.tmgr.submit_tasks(description)
    description.arguments = ['-c', 'exit 7']
    assert isinstance(task, rp.Task)
    assert re.fullmatch(r'task\.\d{6}', task.uid)
    assert task.wait() == task.state == rp.DONE
    assert (task.tmgr, task.session, task.origin) == (shared.tmgr, shared.session, 'client')
    assert (task.name, task.mode, task.metadata) == ('me', rp.TASK_EXECUTABLE, {'a': [1]})
    assert (task.exit_code, task.stdout, task.stderr) == (0, 'out\n', 'err\n')
    assert (task.return_value, task.exception, task.exception_detail, task.partition, task.info) == (None,) * 5
    assert task.pilot == shared.pilot.uid
    assert task.sandbox == task.task_sandbox == f'{shared.pilot.pilot_sandbox}/{task.uid}'
    for name in ('pilot_sandbox', 'session_sandbox', 'resource_sandbox', 'client_sandbox', 'endpoint_fs'):
        assert getattr(task, name) == getattr(shared.pilot, name)
    assert task.output_files == []
    (slot,) = task.slots or []
    assert isinstance(slot, rp.Slot)
    assert [core['occupation'] for core in slot.cores] == [1.0]
    assert (slot.node_index, slot.node_name) == (0, 'localhost')
    assert isinstance(task.description, rp.TaskDescription)
    assert task.description.as_dict() == before | {'uid': task.uid, 'use_mpi': False}
    for text in (task.uid, rp.DONE):
        assert text in str(task)
        assert text in repr(task)


def test_old_attribute_names_are_still_keys_after_submission(shared: Run) -> None:
    with pytest.warns(DeprecationWarning, match='use cores_per_rank'), \
            pytest.warns(DeprecationWarning, match='use gpus_per_rank'):
        task = shared.one(executable='/bin/true', cpu_threads=2, gpu_processes=1)
    assert task.state == rp.DONE
    assert (task.description['cores_per_rank'], task.description['gpu_processes']) == (2, 1)
    assert task.description.get('use_mpi') is False
    assert len((task.slots or [])[0].cores) == 2


def test_task_before_it_is_bound(session: rp.Session) -> None:
    task = rp.TaskManager(session).submit_tasks(TRUE)
    assert task.wait(rp.TMGR_SCHEDULING, timeout=30) == rp.TMGR_SCHEDULING
    assert (task.pilot, task.sandbox, task.pilot_sandbox, task.session_sandbox, task.resource_sandbox, task.endpoint_fs,
            task.slots, task.exit_code, task.exception) == (None,) * 9
    assert (task.stdout, task.stderr, task.output_files) == ('', '', [])
    assert task.as_dict()['pilot'] is None


def test_a_wait_without_pilots_is_noticed(session: rp.Session, base: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who has forgotten add_pilots would wait for ever, and not know why."""
    pmgr, tmgr = managers(session)
    task = tmgr.submit_tasks(TRUE)
    assert tmgr.wait_tasks(task.uid, state=rp.TMGR_SCHEDULING, timeout=30) == rp.TMGR_SCHEDULING
    assert not caplog.records
    assert tmgr.wait_tasks(timeout=0.01) == [rp.TMGR_SCHEDULING]
    record, = caplog.records
    assert record.getMessage() == 'tasks are waited for, but tmgr.0000 has no pilot to run them on: see add_pilots'
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    assert task.wait(timeout=30) == rp.DONE
    tmgr.remove_pilots(pilot.uid)
    assert tmgr.wait_tasks() == [rp.DONE]
    assert caplog.records == [record]


def test_task_as_plain_data(shared: Run) -> None:
    task = shared.one(executable='/bin/false')
    data = json.loads(json.dumps(task.as_dict()))
    assert {'type', 'tmgr', 'uid', 'name', 'state', 'origin', 'exit_code', 'stdout', 'stderr', 'return_value',
            'exception', 'exception_detail', 'pilot', 'endpoint_fs', 'resource_sandbox', 'session_sandbox',
            'pilot_sandbox', 'task_sandbox', 'client_sandbox', 'info', 'slots', 'partition', 'description'} <= set(data)
    assert (data['type'], data['state'], data['exit_code']) == ('task', rp.FAILED, 1)
    assert data['description']['executable'] == '/bin/false'
    assert data['exception_detail'] == task.exception_detail
    assert len(data['slots']) == 1


def test_tasks_of_a_list(session: rp.Session) -> None:
    tmgr = rp.TaskManager(session)
    assert tmgr.scheduler == rp.SCHEDULER_DEFAULT
    assert [tmgr.submit_tasks([]), tmgr.list_tasks(), tmgr.get_tasks(), tmgr.wait_tasks()] == [[], [], [], []]
    (one,) = tmgr.submit_tasks([TRUE])
    mapping = cast(rp.TaskDescription, {'executable': 'y'})
    two, three = tmgr.submit_tasks((rp.TaskDescription({'executable': 'x', 'uid': 'mine'}), mapping))
    assert tmgr.list_tasks() == [one.uid, 'mine', three.uid]
    assert tmgr.get_tasks() == tmgr.get_tasks(None) == [one, two, three]
    assert tmgr.get_tasks('mine') is two
    assert tmgr.get_tasks(['mine']) == [two]
    assert tmgr.get_tasks([]) == []
    for call in (tmgr.get_tasks, tmgr.wait_tasks, tmgr.cancel_tasks):
        for unknown in ('nope', ['mine', 'nope']):
            with pytest.raises(ValueError, match='nope'):
                call(unknown)
    tmgr.cancel_tasks('mine')
    assert tmgr.wait_tasks('mine', timeout=30) == rp.CANCELED
    tmgr.cancel_tasks(uids=[one.uid])
    assert tmgr.wait_tasks(uids=[one.uid, 'mine'], timeout=30) == [rp.CANCELED] * 2
    assert three.state == rp.TMGR_SCHEDULING


def test_wait_for_tasks(shared: Run) -> None:
    """A state that was passed counts; of several the earliest; a final state ends every wait; the default is final."""
    tmgr = shared.tmgr
    running, failed = tmgr.submit_tasks([sleeping(), rp.TaskDescription({'executable': '/bin/false'})])
    assert running.wait(rp.AGENT_EXECUTING, timeout=30) == rp.AGENT_EXECUTING
    assert running.wait([*rp.FINAL, rp.AGENT_EXECUTING]) == rp.AGENT_EXECUTING
    for state in (rp.TMGR_SCHEDULING, [rp.AGENT_SCHEDULING], rp.NEW):
        assert running.wait(state) == tmgr.wait_tasks(running.uid, state) == rp.AGENT_EXECUTING
    assert running.wait(timeout=0.01) == rp.AGENT_EXECUTING
    assert tmgr.wait_tasks(running.uid, timeout=0.01) == rp.AGENT_EXECUTING
    assert running.wait(rp.AGENT_STAGING_OUTPUT, timeout=0.01) == rp.AGENT_EXECUTING
    assert failed.wait() == rp.FAILED
    assert failed.wait(rp.DONE) == failed.wait([rp.CANCELED]) == rp.FAILED
    assert failed.wait(rp.TMGR_STAGING_OUTPUT) == rp.FAILED
    assert tmgr.wait_tasks([running.uid, failed.uid], rp.AGENT_EXECUTING) == [rp.AGENT_EXECUTING, rp.FAILED]
    with pytest.raises(StateError, match='EXECUTING'):
        running.wait('EXECUTING')
    with pytest.raises(StateError, match='PMGR_ACTIVE'):
        tmgr.wait_tasks(running.uid, rp.PMGR_ACTIVE)
    waiter = threading.Thread(target=running.wait)
    waiter.start()
    running.cancel()
    waiter.join(30)
    assert not waiter.is_alive()
    assert running.state == rp.CANCELED


@pytest.mark.parametrize(('values', 'error', 'words'), [
    ({'exeutable': 'x'}, AttributeUnknown, 'exeutable.*executable'), ({'cores': 4}, AttributeUnknown, 'cores_per_rank'),
    ({'ranks': 'three'}, AttributeTypeError, "ranks.*'three'"), ({'ranks': 0}, DescriptionError, 'ranks.*1 or more'),
    ({'executable': ''}, DescriptionError, 'executable'), ({'gpus_per_rank': 1.5}, DescriptionError, 'gpus_per_rank'),
    ({'uid': 'pilot'}, DescriptionError, 'reserved'), ({'uid': 'a b'}, DescriptionError, 'uid'),
    ({'mode': 'task.exe'}, AttributeTypeError, 'mode.*task.executable'), ({'timeout': -1}, DescriptionError, 'timeout'),
    ({'mode': rp.TASK_FUNCTION, 'function': 'f'}, DescriptionError, 'RAPTOR'),
    ({'mode': rp.TASK_SHELL, 'command': 'x'}, DescriptionError, 'RAPTOR'),
    ({'mode': rp.RAPTOR_WORKER}, DescriptionError, 'raptor_id'), ({'mode': rp.TASK_EVAL}, DescriptionError, 'code'),
    ({'mode': rp.TASK_SERVICE, 'service': {'port': -1}}, DescriptionError, 'port.*-1'),
    ({'named_env': 'a/b'}, DescriptionError, 'named_env'),
    ({'services': ['']}, DescriptionError, 'services'), ({'environment': ['x']}, AttributeTypeError, 'environment'),
    ({'metadata': {'x': object()}}, DescriptionError, 'plain data'),
    ({'metadata': {'x': {1, 2}}}, DescriptionError, 'plain data'),
    ({'input_staging': [{'sorce': 'x'}]}, DescriptionError, 'sorce.*source'),
    ({'input_staging': [{'source': 'x', 'action': 'Kopy'}]}, DescriptionError, "'Kopy'.*Copy"),
    ({'output_staging': ['a > b > c']}, DescriptionError, 'a > b > c'),
    ({'output_staging': [{'source': 'a', 'target': 'nowhere:///b'}]}, DescriptionError, 'nowhere')])
def test_task_description_is_refused(shared: Run, values: dict[str, Any], error: type[Exception], words: str) -> None:
    """At the call, whole: no task of the list is submitted."""
    bad = rp.TaskDescription({'executable': '/bin/true'} | values)
    known = shared.tmgr.list_tasks()
    for wanted in (bad, [TRUE, bad]):
        with pytest.raises(error, match=words):
            shared.tmgr.submit_tasks(wanted)
    assert shared.tmgr.list_tasks() == known


def test_missing_executable_is_refused(shared: Run) -> None:
    with pytest.raises(DescriptionError, match='executable is not set'):
        shared.tmgr.submit_tasks(rp.TaskDescription({'arguments': ['x']}))


def test_other_things_are_no_task_descriptions(shared: Run) -> None:
    known = shared.tmgr.list_tasks()
    wrongs: list[Any] = [None, 7, '/bin/true', [None], [7], ['/bin/true']]
    for wrong in wrongs:
        named = wrong[0] if isinstance(wrong, list) else wrong
        with pytest.raises(AttributeTypeError, match=f'task descriptions are needed, not {named!r}'):
            shared.tmgr.submit_tasks(wrong)
    assert shared.tmgr.list_tasks() == known


def test_task_uids_are_unique(shared: Run) -> None:
    """In one call, across calls, and across the managers of a session."""
    def named(uid: str) -> rp.TaskDescription:
        return rp.TaskDescription({'executable': '/bin/true', 'uid': uid})

    other = rp.TaskManager(shared.session)
    shared.tmgr.submit_tasks(named('taken'))
    for tmgr, wanted in ((shared.tmgr, named('taken')), (shared.tmgr, [named('new'), named('taken')]),
                         (shared.tmgr, [named('new'), named('new')]), (other, named('taken'))):
        with pytest.raises(ValueError, match='unique'):
            tmgr.submit_tasks(wanted)
    assert 'new' not in shared.tmgr.list_tasks()
    tasks = shared.tmgr.submit_tasks([named('task.900001'), TRUE, named('new'), TRUE])
    assert len({task.uid for task in tasks}) == 4
    assert shared.tmgr.wait_tasks([task.uid for task in tasks], timeout=30) == [rp.DONE] * 4
    other.close()


def test_made_up_task_uids_avoid_those_of_the_application(session: rp.Session) -> None:
    tmgr = rp.TaskManager(session)
    taken = tmgr.submit_tasks(rp.TaskDescription({'executable': 'x', 'uid': 'task.000000'}))
    made_up = tmgr.submit_tasks([TRUE, rp.TaskDescription({'executable': 'x', 'uid': 'task.000002'}), TRUE])
    assert len({taken.uid, *[task.uid for task in made_up]}) == 4


def test_submission_from_several_threads(shared: Run) -> None:
    found: list[rp.Task] = []

    def submit() -> None:
        found.extend(task for _ in range(5) for task in shared.tmgr.submit_tasks([TRUE] * 5))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({task.uid for task in found}) == 100
    assert {task.wait(timeout=30) for task in found} == {rp.DONE}


def test_unknown_scheduler(session: rp.Session) -> None:
    with pytest.raises(ValueError, match=r"'magic'.*round_robin"):
        rp.TaskManager(session, scheduler='magic')
    with pytest.raises(ValueError, match=r"'magic'.*round_robin"):
        rp.TaskManager(session, {'scheduler': 'magic'})
    assert session.list_task_managers() == []


def test_scheduler(session: rp.Session) -> None:
    """The argument comes before the configuration."""
    assert rp.TaskManager(session, scheduler=rp.SCHEDULER_ROUND_ROBIN).scheduler == 'round_robin'
    assert rp.TaskManager(session, {'scheduler': 'backfilling'}).scheduler == 'backfilling'
    assert rp.TaskManager(session, {'scheduler': 'magic'}, 'backfilling').scheduler == 'backfilling'
    assert {rp.TaskManager(session, cfg).scheduler for cfg in ('default', None, {}, {'other': 1})} == {'round_robin'}
    odd: list[tuple[Any, Any]] = [(5, None), ({'scheduler': 5}, None), ('default', 5)]
    for cfg, scheduler in odd:
        with pytest.raises(TypeError, match='of a task manager is 5'):
            rp.TaskManager(session, cfg, scheduler)


def test_scheduler_with_a_bad_environment(session: rp.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_BF_OVERSUBSCRIPTION', 'some')
    with pytest.raises(ValueError, match=r"RADICAL_PILOT_BF_OVERSUBSCRIPTION is 'some', it must be a percentage"):
        rp.TaskManager(session, scheduler='backfilling')
    assert session.list_task_managers() == []


@pytest.mark.parametrize('manager', [rp.PilotManager, rp.TaskManager])
def test_callbacks_that_cannot_be(shared: Run, manager: type) -> None:
    one = manager(session=shared.session)
    with pytest.raises(ValueError, match='NO_METRIC'):
        one.register_callback(print, metric='NO_METRIC')
    with pytest.raises(ValueError, match='cannot be called'):
        one.register_callback('print')
    with pytest.raises(ValueError, match='not registered'):
        one.unregister_callback(print)
    one.register_callback(print)
    one.unregister_callback(print)
    with pytest.raises(ValueError, match='not registered'):
        one.unregister_callback(print)
    one.unregister_callback(None)
    one.close()


def test_callback_for_an_unknown_task(shared: Run) -> None:
    with pytest.raises(ValueError, match='nope'):
        shared.tmgr.register_callback(print, uid='nope')


# pilots and tasks


def test_late_binding(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = managers(session)
    tasks = tmgr.submit_tasks([TRUE] * 5)
    assert tmgr.wait_tasks(state=rp.TMGR_SCHEDULING, timeout=30) == [rp.TMGR_SCHEDULING] * 5
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    assert tmgr.wait_tasks(timeout=30) == [rp.DONE] * 5
    assert {task.pilot for task in tasks} == {pilot.uid}


def test_early_binding(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = managers(session)
    one, other = pmgr.submit_pilots([pilot_description(base, cores=1, uid=uid) for uid in ('one', 'other')])
    tmgr.add_pilots(one)
    there = tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true', 'pilot': 'other'}) for _ in range(3)])
    here = tmgr.submit_tasks([TRUE] * 3)
    assert {task.wait(timeout=30) for task in here} == {rp.DONE}
    assert {task.pilot for task in here} == {'one'}
    assert {task.state for task in there} == {rp.TMGR_SCHEDULING}
    tmgr.add_pilots([other])
    assert {task.wait(timeout=30) for task in there} == {rp.DONE}
    assert {task.pilot for task in there} == {'other'}


def test_early_binding_to_a_pilot_that_has_ended(session: rp.Session, base: Path) -> None:
    """The task ends, whether it was submitted before or after the pilot's end, because it can never run."""
    pmgr, tmgr = managers(session)
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base, cores=1)))
    pilot = pmgr.submit_pilots(pilot_description(base, cores=1, uid='gone'))
    tmgr.add_pilots(pilot)
    active(pilot).cancel()
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true', 'pilot': 'gone'}))
    assert task.wait(timeout=30) in (rp.FAILED, rp.CANCELED)
    assert 'gone' in f'{task.exception}'


def test_submission_through_a_pilot(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = managers(session)
    one, other = pmgr.submit_pilots([pilot_description(base, cores=1) for _ in range(2)])
    with pytest.raises(RuntimeError, match='add_pilots'):
        one.submit_tasks([TRUE])
    tmgr.add_pilots([one, other])
    tasks = one.submit_tasks([rp.TaskDescription({'executable': '/bin/true'}) for _ in range(3)])
    assert {task.wait(timeout=30) for task in tasks} == {rp.DONE}
    assert {task.pilot for task in tasks} == {one.uid}


def test_round_robin(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = managers(session)
    pilots = pmgr.submit_pilots([pilot_description(base, cores=1) for _ in range(2)])
    tmgr.add_pilots(pilots)
    assert tmgr.list_pilots() == [pilot.uid for pilot in pilots]
    assert tmgr.get_pilots() == pilots
    tasks = tmgr.submit_tasks([TRUE] * 6)
    assert tmgr.wait_tasks(timeout=30) == [rp.DONE] * 6
    assert [task.pilot for task in tasks] == [pilot.uid for pilot in pilots] * 3
    tmgr.remove_pilots(pilots[0].uid)
    assert tmgr.list_pilots() == [pilots[1].uid]
    tasks = tmgr.submit_tasks([TRUE] * 4)
    assert {task.wait(timeout=30) for task in tasks} == {rp.DONE}
    assert {task.pilot for task in tasks} == {pilots[1].uid}
    for uids in (pilots[0].uid, [pilots[1].uid, 'nope']):
        with pytest.raises(ValueError, match='was not added'):
            tmgr.remove_pilots(uids)
    tmgr.remove_pilots(pilots[1].uid, drain=True)
    with pytest.raises(RuntimeError, match='was drained'):
        tmgr.add_pilots(pilots[1])
    assert pilots[0].state == rp.PMGR_ACTIVE
    tmgr.add_pilots(pilots[0])


def test_tasks_of_a_removed_pilot_go_on(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = managers(session)
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/sleep', 'arguments': ['0.3']}))
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    later = tmgr.submit_tasks(sleeping())
    later.wait(rp.AGENT_EXECUTING, timeout=30)
    tmgr.remove_pilots([pilot.uid])
    waiting = tmgr.submit_tasks(TRUE)
    assert task.wait(timeout=30) == rp.DONE
    assert later.state == rp.AGENT_EXECUTING
    pmgr.kill_pilots(pilot.uid)
    assert later.wait(timeout=30) == rp.CANCELED
    assert waiting.wait(timeout=0.01) == rp.TMGR_SCHEDULING


def test_add_pilots_takes_what_stands_for_a_pilot(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = managers(session)
    pilots = pmgr.submit_pilots([pilot_description(base, cores=1) for _ in range(3)])
    tmgr.add_pilots(pilots[0].as_dict())
    tmgr.add_pilots([pilots[1].as_dict(), pilots[2]])
    assert tmgr.get_pilots() == pilots
    for wrong, words in (([], 'at least one'), (pilots[0], 'already'), ({'uid': 'nope'}, 'nope')):
        with pytest.raises(ValueError, match=words):
            tmgr.add_pilots(wrong)
    assert tmgr.submit_tasks(TRUE).wait(timeout=30) == rp.DONE


def test_a_pilot_has_one_task_manager(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = managers(session)
    other = rp.TaskManager(session)
    free, pilot = pmgr.submit_pilots([pilot_description(base, cores=1) for _ in range(2)])
    tmgr.add_pilots(pilot)
    for wanted in (pilot, [free, pilot]):
        with pytest.raises(RuntimeError, match=tmgr.uid):
            other.add_pilots(wanted)
    assert other.list_pilots() == []
    with pytest.raises(RuntimeError, match=tmgr.uid):
        pilot.attach_tmgr(other)
    other.add_pilots(free)
    with pytest.raises(ValueError, match='already'):
        rp.TaskManager(session).add_pilots([pmgr.submit_pilots(pilot_description(base, cores=1))] * 2)


def test_task_managers_work_side_by_side(session: rp.Session, base: Path) -> None:
    pmgr = rp.PilotManager(session)
    tmgrs = [rp.TaskManager(session) for _ in range(2)]
    for tmgr in tmgrs:
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base, cores=1)))
    tasks = [tmgr.submit_tasks([TRUE] * 3) for tmgr in tmgrs]
    assert [tmgr.wait_tasks(timeout=30) for tmgr in tmgrs] == [[rp.DONE] * 3] * 2
    assert [{task.pilot for task in each} for each in tasks] == [{tmgr.list_pilots()[0]} for tmgr in tmgrs]
    assert [tmgr.list_tasks() for tmgr in tmgrs] == [[task.uid for task in each] for each in tasks]


def test_closing_a_task_manager(session: rp.Session, base: Path) -> None:
    """Its tasks end, on the pilot, too; the pilot goes on, and others can use it."""
    pmgr, tmgr = managers(session)
    pilot = pmgr.submit_pilots(pilot_description(base, cores=1))
    tmgr.add_pilots(pilot)
    tasks = tmgr.submit_tasks([sleeping(), sleeping()])
    tasks[0].wait(rp.AGENT_EXECUTING, timeout=30)
    tmgr.close()
    tmgr.close()
    assert [task.state for task in tasks] == [rp.CANCELED] * 2
    with pytest.raises(RuntimeError, match='closed'):
        tmgr.submit_tasks(TRUE)
    wait_until(lambda: not sandbox_pids(tasks[0]), what='end of the task')
    other = rp.TaskManager(session)
    other.add_pilots(pilot)
    assert other.submit_tasks(TRUE).wait(timeout=30) == rp.DONE


def test_cancelled_pilot(session: rp.Session, base: Path) -> None:
    """Only its own tasks end, those that run and those that wait; those of the other pilot go on."""
    pmgr, tmgr = managers(session)
    one, other = pmgr.submit_pilots([pilot_description(base, cores=1) for _ in range(2)])
    tmgr.add_pilots([one, other])
    active(one)
    active(other)
    gate = base / 'gate'
    tasks = tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', f'until test -e {gate}; do sleep 0.02; done']}) for _ in range(6)])
    tmgr.wait_tasks([task.uid for task in tasks[:2]], rp.AGENT_EXECUTING, timeout=30)
    one.cancel()
    ended = [task for task in tasks if task.pilot == one.uid]
    assert len(ended) == 3
    assert {task.wait(timeout=30) for task in ended} == {rp.CANCELED}
    for task in ended:
        assert one.uid in f'{task.exception} {task.exception_detail}'
    gate.touch()
    assert {task.wait(timeout=30) for task in tasks if task.pilot == other.uid} == {rp.DONE}
    assert tmgr.submit_tasks(TRUE).wait(timeout=30) == rp.DONE


def test_pilot_cancelled_before_it_is_active(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = managers(session)
    pilot = pmgr.submit_pilots(pilot_description(base))
    tmgr.add_pilots(pilot)
    task = tmgr.submit_tasks(TRUE)
    task.wait(rp.AGENT_STAGING_INPUT_PENDING, timeout=30)
    pilot.cancel()
    assert pilot.state == rp.CANCELED
    assert task.wait(timeout=30) in (rp.CANCELED, rp.DONE)


def test_application_hears_of_the_wait_queue(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = managers(session)
    sizes: list[int] = []
    data: list[Any] = []

    def note(manager: rp.TaskManager, size: int) -> None:
        assert manager is tmgr
        sizes.append(size)

    tmgr.register_callback(note, metric=rp.WAIT_QUEUE_SIZE)
    tmgr.register_callback(lambda *args: data.append(args[2]), cb_data='mine', metric=[rp.WAIT_QUEUE_SIZE])
    tmgr.submit_tasks([TRUE] * 3)
    wait_until(lambda: sizes == [3], what=f'{sizes}')
    tmgr.submit_tasks([TRUE] * 2)
    wait_until(lambda: sizes == [3, 5], what=f'{sizes}')
    tmgr.cancel_tasks(tmgr.list_tasks()[0])
    wait_until(lambda: sizes == [3, 5, 4], what=f'{sizes}')
    tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base)))
    wait_until(lambda: sizes == [3, 5, 4, 0], what=f'{sizes}')
    wait_until(lambda: data == ['mine'] * 4)
    tmgr.unregister_callback(note, metrics=rp.WAIT_QUEUE_SIZE)
    assert tmgr.wait_tasks(timeout=30) == [rp.CANCELED, *[rp.DONE] * 4]
