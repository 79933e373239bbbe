"""Services: when they are ready, what their users get, how they are started again, and how they end."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from conftest import Run, hub_pid, pilot_description, processes_with, wait_until

import radical.pilot as rp

STUB = str(Path(__file__).with_name('service_stub.py'))
TIMEOUT = 30.0
QUICK = {'interval': 0.05, 'timeout': 0.2}
ATTEMPTS = 2
RESTART = {'attempts': ATTEMPTS, 'delay': 0.05}


def stub(delay: float = 0.0, **values: Any) -> rp.TaskDescription:
    """A service that runs the stub server."""
    usual = {'port': 0, 'probe': {'http': '/', **QUICK}, 'info': 'http://127.0.0.1:{port}'}
    return rp.TaskDescription({'mode': rp.TASK_SERVICE, 'executable': sys.executable, 'arguments': [STUB, str(delay)],
                               'service': usual | values.pop('service', {})} | values)


def user(*services: str) -> rp.TaskDescription:
    """A task that prints the information on the services that it needs."""
    return rp.TaskDescription({'executable': 'env', 'services': list(services)})


def told(task: rp.Task) -> dict[str, str]:
    """The information that a user has got, by the variable, without its prefix."""
    assert task.wait(timeout=TIMEOUT) == rp.DONE, (task.state, task.reason, task.exception, task.exception_detail)
    pairs = [line.split('=', 1) for line in task.stdout.splitlines() if line.startswith('RP_INFO_')]
    return {name.removeprefix('RP_INFO_'): value for name, value in pairs}


def ask(url: str) -> int:
    """The process that serves a URL."""
    with urlopen(url, timeout=TIMEOUT) as answer:
        return int(answer.read())


def kill(service: rp.Task) -> int:
    """Kill the server of a service, wait until the agent knows of it, and return its process."""
    pid = ask(service.wait_info(TIMEOUT))
    os.kill(pid, signal.SIGKILL)

    def is_known() -> bool:
        info = service.info
        try:
            return service.state == rp.FAILED or info is None or ask(info) != pid
        except OSError:
            return False

    wait_until(is_known)
    return pid


def end(*tasks: rp.Task) -> None:
    for task in tasks:
        task.cancel()
    assert [task.wait(timeout=TIMEOUT) for task in tasks] == [rp.CANCELED] * len(tasks)


@pytest.mark.parametrize(('probe', 'info'), [
    ({'http': '/health'}, lambda url: f'at {url}'), ({'port': True}, lambda url: f'at {url}'),
    ({'file': 'ready'}, lambda url: f'at {url}'),
    ({'pattern': 'stdout:listens at (.*) as [0-9]+$'}, lambda url: url)])
def test_users_start_when_the_service_is_ready(shared: Run, probe: dict[str, Any], info: Callable[[str], str]) -> None:
    name = f'web-{next(iter(probe))}'
    settings = {'name': name, 'port': 0, 'probe': {**probe, **QUICK}}
    if 'pattern' not in probe:
        settings['info'] = 'at http://127.0.0.1:{port}'
    description = stub(0.2)
    description.service = settings
    task = shared.tmgr.submit_tasks(user(name))
    service = shared.tmgr.submit_tasks(description)
    by_uid = shared.tmgr.submit_tasks(user(service.uid))
    found = service.wait_info(TIMEOUT)
    url = found.removeprefix('at ')
    assert found == service.info == info(url)
    assert told(task) == {name.upper().replace('-', '_'): found}
    assert told(by_uid) == {service.uid.upper().replace('.', '_'): found}
    assert ask(url) > 0
    assert service.state == rp.AGENT_EXECUTING
    end(service)
    assert shared.one(executable='true', services=[name]).exception == f'service {name} has ended as CANCELED'


def test_the_pattern_of_radical_pilot_1(shared: Run) -> None:
    """Its example: the service prints its address, and tasks name the service by its uid."""
    service, = shared.tmgr.submit_tasks([rp.TaskDescription({
        'uid': 'service.1', 'mode': rp.TASK_SERVICE, 'executable': '/bin/sh', 'startup_timeout': 20,
        'arguments': ['-c', 'sleep 0.1; echo "INFO: foo://localhost:1234/"; sleep 1000'],
        'info_pattern': 'stdout:INFO: (.*)$'})])
    tasks = shared.tmgr.submit_tasks([user('service.1')] * 3)
    assert [told(task) for task in tasks] == [{'SERVICE_1': 'foo://localhost:1234/'}] * 3
    assert service.wait_info() == 'foo://localhost:1234/'
    end(service)


def test_literal_arguments(shared: Run) -> None:
    service = shared.tmgr.submit_tasks(rp.TaskDescription({
        'mode': rp.TASK_SERVICE, 'executable': '/bin/sh', 'literal_arguments': True,
        'info_pattern': 'stdout:INFO: (.*)$',
        'arguments': ['-c', 'for i in $(seq 3); do last=$i; done; echo "INFO: $last"; sleep 1000']}))
    assert service.wait_info(TIMEOUT) == '3'
    end(service)


def test_a_service_reports_that_it_is_ready(shared: Run) -> None:
    signals = f'{Path(sys.executable).with_name("radical-pilot-service-signal")} --info'
    service, = shared.tmgr.submit_tasks([rp.TaskDescription({
        'mode': rp.TASK_SERVICE, 'service': {'name': 'signals', 'probe': {'signal': True}}, 'executable': '/bin/sh',
        'arguments': ['-c', f'{signals} first && {signals} second; sleep 1000']})])
    assert told(shared.tmgr.submit_tasks(user('signals')))['SIGNALS'] in ('first', 'second')
    wait_until(lambda: service.info == 'second')
    end(service)


def test_a_service_that_is_not_ready_in_time_fails_with_its_users(shared: Run) -> None:
    service, = shared.tmgr.submit_tasks([stub(1000.0, startup_timeout=3, service={'name': 'slow'})])
    task = shared.tmgr.submit_tasks(user('slow'))
    wait_until(lambda: str(task.reason) == 'waits for service slow (is starting)' or task.state == rp.FAILED)
    with pytest.raises(RuntimeError, match=r'FAILED before it was ready.*not ready within 3 s'):
        service.wait_info(TIMEOUT)
    assert service.wait(timeout=TIMEOUT) == task.wait(timeout=TIMEOUT) == rp.FAILED
    assert str(service.exception).startswith('service slow has failed: it was not ready within 3 s: GET http://')
    assert 'Connection refused' in str(service.exception)
    assert str(service.exception_detail).endswith(f'{service.uid}.out ends with:\nbegins\n')
    assert (task.exception, task.exception_detail) == (service.exception, service.exception_detail)


def test_waits_for_information_end(shared: Run) -> None:
    service, plain = shared.tmgr.submit_tasks([stub(1000.0), rp.TaskDescription({'executable': 'true'})])
    with pytest.raises(TimeoutError, match=r'not ready after 0\.1 s'):
        service.wait_info(0.1)
    with pytest.raises(RuntimeError, match=r"no service, its mode is 'task\.executable'"):
        plain.wait_info()
    service.cancel()
    with pytest.raises(RuntimeError, match='CANCELED before it was ready'):
        service.wait_info(TIMEOUT)


def test_a_killed_service_is_started_again_and_then_given_up(shared: Run) -> None:
    states: list[str] = []
    service, = shared.tmgr.submit_tasks([stub(service={'name': 'again', 'restart': RESTART})])
    service.register_callback(lambda task, state: states.append(state))
    urls, pids = set(), set()
    for _ in range(ATTEMPTS + 1):
        urls.add(told(shared.tmgr.submit_tasks(user('again')))['AGAIN'])
        pids.add(kill(service))
    assert (len(urls), len(pids)) == (1, ATTEMPTS + 1)   # it keeps its port
    assert service.wait(timeout=TIMEOUT) == rp.FAILED
    assert service.exception == ('service again has failed after 2 restarts: it ended: killed by signal 9 (SIGKILL)')
    wait_until(lambda: states[-1:] == [rp.FAILED])
    assert states.count(rp.AGENT_EXECUTING) <= 1   # none if it was passed before the callback was registered
    before = states[:states.index(rp.AGENT_EXECUTING)] if rp.AGENT_EXECUTING in states else []
    assert rp.AGENT_STAGING_OUTPUT not in before
    assert 'service again has failed' in str(shared.one(executable='true', services=['again']).exception)


def test_tasks_that_wait_for_resources_do_not_start_while_their_service_is_down(shared: Run, base: Path) -> None:
    """They have left the gate before, and go back to it; then they are told of the new run."""
    service, = shared.tmgr.submit_tasks([stub(service={'name': 'moves', 'info': None, 'restart': RESTART,
                                                       'probe': {'pattern': 'stdout:as ([0-9]+)$', **QUICK}})])
    first = service.wait_info(TIMEOUT)
    command = f'until [ -e {base}/go ]; do sleep 0.02; done'
    busy = shared.tmgr.submit_tasks(rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', command], 'cores_per_rank': 3}))
    task = shared.tmgr.submit_tasks(rp.TaskDescription({**user('moves').as_dict(), 'cores_per_rank': 2}))
    wait_until(lambda: task.state == rp.AGENT_SCHEDULING)
    os.kill(int(first), signal.SIGKILL)
    wait_until(lambda: service.info not in (None, first))
    (base / 'go').touch()
    assert told(task) == {'MOVES': service.info}
    assert busy.wait(timeout=TIMEOUT) == rp.DONE
    end(service)


def test_a_service_that_waits_for_its_restart_says_so_and_can_be_cancelled(shared: Run) -> None:
    service, = shared.tmgr.submit_tasks([stub(service={'name': 'x', 'restart': {'attempts': 1, 'delay': 30.0}})])
    kill(service)
    assert str(service.reason) == 'waits for restart 1 of 1 in 30 s: it ended: killed by signal 9 (SIGKILL)'
    assert (service.state, service.info) == (rp.AGENT_EXECUTING, None)
    task = shared.tmgr.submit_tasks(user('x'))
    wait_until(lambda: str(task.reason) == 'waits for service x (is started again)')
    end(service)
    assert task.wait(timeout=TIMEOUT) == rp.FAILED


def test_a_service_that_hangs_is_started_again(shared: Run) -> None:
    service, = shared.tmgr.submit_tasks([stub(service={'restart': RESTART})])
    url = service.wait_info(TIMEOUT)
    pid = ask(url)
    with socket.create_connection(('127.0.0.1', urlsplit(url).port or 0)) as connection:
        connection.sendall(b'GET /hang HTTP/1.0\r\n\r\n')   # further connections are still accepted
        wait_until(lambda: service.reason)
        assert str(service.reason).startswith('waits for restart 1 of 2 in 0.05 s: it does not work any more: GET http://')
    assert ask(service.wait_info(TIMEOUT)) != pid
    end(service)


def test_several_instances_share_a_name(shared: Run) -> None:
    services = shared.tmgr.submit_tasks([stub(service={'name': 'pair'}) for _ in range(2)])
    urls = [service.wait_info(TIMEOUT) for service in services]
    found = [told(task)['PAIR'] for task in shared.tmgr.submit_tasks([user('pair')] * 4)]
    assert sorted(found) == sorted(urls * 2)
    kill(services[0])
    assert services[0].wait(timeout=TIMEOUT) == rp.FAILED
    assert {told(task)['PAIR'] for task in shared.tmgr.submit_tasks([user('pair')] * 3)} == {urls[1]}
    end(services[1])


def test_services_outside_of_the_pilot(shared: Run) -> None:
    task = shared.tmgr.submit_tasks(user('my-db.1'))
    wait_until(lambda: str(task.reason) == 'waits for service my-db.1')
    shared.pilot.register_service('my-db.1', 'db://host')
    assert told(task) == {'MY_DB_1': 'db://host'}
    with pytest.raises(RuntimeError, match='which are texts'):
        shared.pilot.register_service('x', 3)   # type: ignore[arg-type]


def test_services_of_a_pilot_start_before_its_tasks_and_end_with_it(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    started = f'echo $$ > {base}/own; sleep 0.3; date +%s.%N > {base}/ready; sleep 1000'
    pilot = pmgr.submit_pilots(pilot_description(base, services=[
        stub(service={'name': 'web'}),
        {'executable': '/bin/sh', 'arguments': ['-c', started], 'uid': 'own',
         'service': {'probe': {'file': f'{base}/ready', **QUICK}, 'info': 'mine'}}]))
    tmgr.add_pilots(pilot)
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'date', 'arguments': ['+%s.%N']}))
    users = tmgr.submit_tasks([user('web', 'own'), user(f'{pilot.uid}.service.0000')])
    assert told(users[0]) == {'WEB': told(users[1])[f'{pilot.uid}.service.0000'.upper().replace('.', '_')],
                              'OWN': 'mine'}
    assert task.wait(timeout=TIMEOUT) == rp.DONE
    assert float((base / 'ready').read_text()) < float(task.stdout)
    assert set(tmgr.list_tasks()) == {each.uid for each in [task, *users]}
    with pytest.raises(ValueError, match='own'):
        tmgr.submit_tasks(rp.TaskDescription({'executable': 'true', 'uid': 'own'}))
    own = int((base / 'own').read_text())
    pilot.cancel()
    wait_until(lambda: not os.path.exists(f'/proc/{own}'))


def test_a_pilot_fails_with_its_services(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, exit_on_error=False, services=[
        {'executable': '/bin/sh', 'arguments': ['-c', 'echo no licence >&2; exit 3'], 'info_pattern': 'stdout:x'}]))
    tmgr.add_pilots(pilot)
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': 'true'}))
    assert pilot.wait(timeout=TIMEOUT) == rp.FAILED
    assert 'has lost its service pilot.0000.service.0000' in str(pilot.exception)
    assert 'it ended before it was ready: exit code: 3' in str(pilot.exception)
    wait_until(lambda: task.pilot is None, TIMEOUT)   # it has not started
    assert 'has lost its service pilot.0000.service.0000' in str(task.reason)


@pytest.mark.fault
def test_services_die_with_the_agent(session: rp.Session, base: Path) -> None:
    """Also one that waits for its restart; their users and those who wait for information hear of it."""
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, exit_on_error=False))
    tmgr.add_pilots(pilot)
    services = tmgr.submit_tasks([stub(), stub(1000.0), stub(service={'restart': {'attempts': 1, 'delay': 30.0}})])
    kill(services[2])
    served = ask(services[0].wait_info(TIMEOUT))
    agent, = [pid for pid, line in processes_with(pilot.pilot_sandbox).items() if 'rp_agent.cli' in line]
    os.kill(agent, signal.SIGKILL)
    with pytest.raises(RuntimeError, match='before it was ready'):
        services[1].wait_info(TIMEOUT)
    assert pilot.wait(timeout=TIMEOUT) == rp.FAILED
    assert [each.wait(timeout=TIMEOUT) for each in services] == [rp.FAILED] * 3
    wait_until(lambda: not os.path.exists(f'/proc/{served}'))


@pytest.mark.fault
def test_users_of_instances_that_are_killed(shared: Run) -> None:
    """Instances are killed while tasks come: each task gets one that was ready, and the services stay."""
    services = shared.tmgr.submit_tasks([
        stub(service={'name': 'many', 'restart': {'attempts': 9, 'delay': 0.01}}) for _ in range(2)])
    for service in services:
        service.wait_info(TIMEOUT)
    urls: list[str] = []
    for number in range(6):
        tasks = shared.tmgr.submit_tasks([user('many')] * 2)
        urls += [told(task)['MANY'] for task in tasks]
        kill(services[number % 2])
    assert all(url.startswith('http://127.0.0.1:') for url in urls)
    assert [service.state for service in services] == [rp.AGENT_EXECUTING] * 2
    end(*services)


@pytest.mark.fault
def test_a_service_outlives_the_hub_and_its_application(base: Path) -> None:
    """It is started again while there is no application; the next one and its tasks get the address of then."""
    with rp.Session(uid='session') as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        tmgr.add_pilots(pmgr.submit_pilots(pilot_description(base, cores=2)))
        service = tmgr.submit_tasks(stub(service={'name': 'web', 'restart': RESTART}))
        pid = ask(service.wait_info(TIMEOUT))
        os.kill(hub_pid(session), signal.SIGKILL)
        told(tmgr.submit_tasks(user('web')))
        session.close(terminate=False)
    os.kill(pid, signal.SIGKILL)
    with rp.Session(uid='session') as session:
        tmgr = session.get_task_managers('tmgr.0000')
        service = tmgr.get_tasks(service.uid)
        url = told(tmgr.submit_tasks(user('web')))['WEB']
        assert ask(url) != pid
        wait_until(lambda: service.info == url)
        end(service)
