"""The data of tasks and pilots: what gets where, how it can be said, and what is told when it cannot be done."""

from __future__ import annotations

import importlib.util
import os
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from conftest import Run, pilot_description, wait_until
from globus_service import THERE, globus_service

import radical.pilot as rp
from rp_api.errors import DescriptionError, StagingError

ACTIONS = [rp.TRANSFER, rp.COPY, rp.LINK, rp.MOVE]


class Client(NamedTuple):
    """A directory below the session's client sandbox, for one test."""

    path: Path
    name: str
    """Its path as seen from the client sandbox."""

    def write(self, name: str, content: str = '') -> Path:
        """A new file, which holds its own name unless told otherwise."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content or name)
        return path


@pytest.fixture
def client(shared: Run, tmp_path: Path) -> Client:
    path = Path(shared.session.client_sandbox) / tmp_path.name
    path.mkdir()
    return Client(path, tmp_path.name)


def place(run: Run, scheme: str, sandbox: str = '') -> Path:
    """The directory that a URL scheme stands for."""
    pilot = run.pilot
    return Path({'client': run.session.client_sandbox, 'endpoint': '/', 'file': '/', 'resource': pilot.resource_sandbox,
                 'session': pilot.session_sandbox, 'pilot': pilot.pilot_sandbox, 'task': sandbox}[scheme])


def copied(source: Any, target: Any = None, action: str = rp.TRANSFER, **values: Any) -> dict[str, Any]:
    """A staging directive as a dict."""
    return {'source': str(source), 'action': action} | ({'target': str(target)} if target else {}) | values


def listing(task: rp.Task) -> set[str]:
    """All files in the sandbox of a task, but its standard ones."""
    root = Path(str(task.sandbox))
    return {str(path.relative_to(root)) for path in root.rglob('*')
            if path.is_file() and not path.name.startswith(f'{task.uid}.')}


def done(task: rp.Task) -> rp.Task:
    assert task.state == rp.DONE, (task.exception, task.exception_detail, task.stderr)
    return task


def failed(task: rp.Task) -> str:
    """Why a task failed."""
    assert task.state == rp.FAILED, (task.state, task.stdout)
    return f'{task.exception}; {task.exception_detail}'


def shell(command: str, **values: Any) -> dict[str, Any]:
    return {'executable': '/bin/sh', 'arguments': ['-c', command]} | values


# input: forms of directives


def test_forms_of_directives(shared: Run, client: Client) -> None:
    for name in 'abcdefgh':
        client.write(name)
    here = client.name
    task = shared.one(**shell('cat a B C D E F G sub/h'), input_staging=[
        f'{here}/a', f'{here}/b > B', f'{here}/c >> C', f'D < {here}/d', f'E<<{here}/e',
        {'source': f'{here}/f', 'target': 'F'},
        {'source': client.path / 'g', 'target': 'task:///G', 'flags': 'RECURSIVE', 'action': 'transfer', 'priority': 0},
        {'source': f'client:///{here}/h', 'target': 'task://sub/', 'action': rp.TRANSFER, 'flags': rp.CREATE_PARENTS}])
    assert done(task).stdout == 'abcdefgh'
    assert listing(task) == {'a', 'B', 'C', 'D', 'E', 'F', 'G', 'sub/h'}
    assert task.output_files == []
    assert [sd['source'] for sd in task.description.input_staging][:2] == [f'{here}/a', f'{here}/b']


def test_single_directive_without_a_list(shared: Run, client: Client) -> None:
    client.write('a')
    task = shared.one(**shell('cat a > b'), input_staging=f'{client.name}/a',
                      output_staging={'source': 'b', 'target': f'{client.name}/c'})
    done(task)
    assert (client.path / 'c').read_text() == 'a'


@pytest.mark.parametrize('name', ['two  words', "it's", 'ünï☃', '-rf', '$HOME', 'a;b', '100%', 'a>b'])
def test_names_with_odd_characters(shared: Run, client: Client, name: str) -> None:
    client.write(name)
    path = f'{client.name}/{name}'
    task = shared.one(executable='/bin/true', input_staging=[copied(path), copied(name, f'pilot:///{path}', rp.COPY)],
                      output_staging=[copied(name, f'{path}.out'), copied(name, f'{name}.link', rp.LINK)])
    done(task)
    assert (client.path / f'{name}.out').read_text() == name
    assert (Path(shared.pilot.pilot_sandbox) / path).read_text() == name
    assert os.readlink(Path(str(task.sandbox)) / f'{name}.link') == f'{task.sandbox}/{name}'


# input: where from and where to


@pytest.mark.parametrize('action', ACTIONS)
@pytest.mark.parametrize('scheme', ['client', 'endpoint', 'file', 'resource', 'session', 'pilot'])
def test_input_from_everywhere(shared: Run, client: Client, action: str, scheme: str) -> None:
    root = place(shared, scheme)
    directory = root / client.name if scheme not in ('endpoint', 'file') else client.path
    directory.mkdir(exist_ok=True)
    source = directory / 'source'
    source.write_text('content')
    url = f'{scheme}:///{source.relative_to(root)}'
    task = shared.one(executable='/bin/cat', arguments=['target'], input_staging=[copied(url, 'target', action)])
    assert done(task).stdout == 'content'
    target = Path(str(task.sandbox)) / 'target'
    assert target.is_symlink() == (action == rp.LINK)
    assert source.exists() == (action != rp.MOVE)
    assert task.output_files == []


@pytest.mark.parametrize('action', ACTIONS)
@pytest.mark.parametrize('scheme', ['client', 'endpoint', 'resource', 'session', 'pilot', 'task'])
def test_output_to_everywhere(shared: Run, client: Client, action: str, scheme: str) -> None:
    """Relative sources are those of the task, parents of targets are made."""
    root = place(shared, scheme)
    inside = Path(client.name if scheme != 'endpoint' else client.path.relative_to('/')) / 'deep' / 'target'
    url = f'{scheme}:///{inside}'
    task = shared.one(**shell('echo content > source'), output_staging=[copied('source', url, action)])
    target = (Path(str(done(task).sandbox)) if scheme == 'task' else root) / inside
    assert target.read_text() == 'content\n'
    assert target.is_symlink() == (action == rp.LINK)
    assert (Path(str(task.sandbox)) / 'source').exists() == (action != rp.MOVE)


def test_tasks_hand_on_data(shared: Run, client: Client) -> None:
    """Through the pilot's sandbox, and from one task's sandbox into another's."""
    first = shared.one(**shell('echo one > a; echo two > b'),
                       output_staging=[copied('a', f'pilot:///{client.name}/a', rp.MOVE)])
    done(first)
    second = shared.one(**shell('cat A B'), input_staging=[
        copied(f'pilot:///{client.name}/a', 'A', rp.LINK), copied(f'pilot:///{first.uid}/b', 'B', rp.COPY)])
    assert done(second).stdout == 'one\ntwo\n'
    third = shared.one(**shell('cat b'), input_staging=[f'{first.sandbox}/b'])
    assert done(third).stdout == 'two\n'


def test_staging_into_the_sandbox_of_the_description(shared: Run, client: Client, tmp_path: Path) -> None:
    client.write('a')
    task = shared.one(**shell('cat a > b'), sandbox=str(tmp_path / 'own'), input_staging=[f'{client.name}/a'],
                      output_staging=[f'b > {client.name}/b', copied('b', 'c', rp.COPY)])
    done(task)
    assert (tmp_path / 'own/c').read_text() == (client.path / 'b').read_text() == 'a'


def test_programs_stay_programs(shared: Run, client: Client) -> None:
    client.write('program', '#!/bin/sh\necho "$0 ran"\n').chmod(0o750)
    task = shared.one(executable='./program', input_staging=[f'{client.name}/program'])
    assert done(task).stdout.endswith('program ran\n')


def test_directives_are_carried_out_in_order(shared: Run, client: Client) -> None:
    client.write('a')
    client.write('b')
    task = shared.one(executable='/bin/cat', arguments=['x'], input_staging=[
        f'{client.name}/a > x', f'{client.name}/b > x', copied('x', 'y', rp.COPY), copied('y', 'z', rp.MOVE)])
    assert done(task).stdout == 'b'
    assert listing(task) == {'x', 'z'}


# directories and patterns


def tree(client: Client) -> set[str]:
    """A directory `tree` with some files; gives their names."""
    names = {'tree/one', 'tree/sub/two', 'tree/sub/deep/three'}
    for name in names:
        client.write(name)
    (client.path / 'tree/link').symlink_to('one')
    (client.path / 'tree/empty').mkdir()
    return names | {'tree/link'}


@pytest.mark.parametrize('action', [*ACTIONS, rp.TARBALL])
def test_directories_in(shared: Run, client: Client, action: str) -> None:
    names = tree(client)
    task = shared.one(executable='/bin/cat', arguments=['got/sub/deep/three'], input_staging=[
        copied(f'client:///{client.name}/tree', 'got', action, flags=rp.RECURSIVE | rp.CREATE_PARENTS)])
    assert done(task).stdout == 'tree/sub/deep/three'
    got = Path(str(task.sandbox)) / 'got'
    assert {f'tree/{path.relative_to(got)}' for path in got.glob('**/*') if path.is_file()} == names
    assert (got / 'empty').is_dir()
    assert os.readlink(got / 'link') == 'one'
    assert got.is_symlink() == (action == rp.LINK)
    assert (client.path / 'tree').exists() == (action != rp.MOVE)


@pytest.mark.parametrize('action', ACTIONS)
def test_directories_out(shared: Run, client: Client, action: str) -> None:
    task = shared.one(**shell('mkdir -p tree/sub; echo x > tree/sub/file'),
                      output_staging=[copied('tree', f'client:///{client.name}/got', action)])
    done(task)
    assert (client.path / 'got/sub/file').read_text() == 'x\n'


def test_directory_as_a_target(shared: Run, client: Client) -> None:
    client.write('a')
    client.write('b')
    task = shared.one(executable='/bin/true', input_staging=[
        f'{client.name}/a > new/', f'{client.name}/b > new', copied('new', 'copy', rp.COPY)])
    done(task)
    assert listing(task) == {'new/a', 'new/b', 'copy/a', 'copy/b'}


def test_patterns(shared: Run, client: Client) -> None:
    for name in ('a.dat', 'b.dat', 'c.txt'):
        client.write(name)
    task = shared.one(**shell('touch x.res y.res z.log'), input_staging=[f'{client.name}/*.dat > in'],
                      output_staging=[f'*.res > {client.name}/out/'])
    done(task)
    assert listing(task) == {'in/a.dat', 'in/b.dat', 'x.res', 'y.res', 'z.log'}
    assert sorted(os.listdir(client.path / 'out')) == ['x.res', 'y.res']


# archives


def test_files_that_travel_together(shared: Run, client: Client) -> None:
    names = tree(client)
    client.write('a', 'x' * 100000)
    client.write('single').chmod(0o700)
    task = shared.one(executable='./in/single', input_staging=[
        copied(f'{client.name}/a', action=rp.TARBALL), copied(f'{client.name}/tree', 'in/tree', rp.TARBALL),
        copied(f'{client.name}/single', 'task:///in/', rp.TARBALL), f'{client.name}/a > plain'], pre_exec=['ls'])
    task.wait(timeout=30)
    assert listing(task) == {'a', 'plain', 'in/single', *(f'in/{name}' for name in names)}
    assert (Path(str(task.sandbox)) / 'a').read_text() == 'x' * 100000
    assert os.access(Path(str(task.sandbox)) / 'in/single', os.X_OK)
    assert task.output_files == []
    assert not list(Path(str(task.sandbox)).glob('*.tar'))


def test_archives_stay_in_the_sandbox(shared: Run, client: Client) -> None:
    client.write('a')
    for target in ('../a', 'pilot:///a', '/tmp/a'):
        task = shared.one(executable='/bin/true', input_staging=[copied(f'{client.name}/a', target, rp.TARBALL)])
        assert target in failed(task)


# the web


class Handler(BaseHTTPRequestHandler):
    """Serves `/file`, and `/slow` when it is told to; keeps what is put; everything else is missing."""

    go = threading.Event()
    asked = threading.Event()

    put: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        self.put[self.path] = self.rfile.read(int(self.headers['Content-Length']))
        self.send_response(201)
        self.end_headers()

    def do_GET(self) -> None:
        if self.path == '/slow':
            self.asked.set()
            self.go.wait(30)
        status, body = (200, b'from the web') if self.path in ('/file', '/slow') else (404, b'no such page')
        self.send_response(status)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Nothing is logged."""


@pytest.fixture
def web() -> Iterator[str]:
    """The address of a web server on this machine."""
    Handler.go.clear()
    Handler.asked.clear()
    with ThreadingHTTPServer(('127.0.0.1', 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        yield f'http://127.0.0.1:{server.server_address[1]}'
        Handler.go.set()
        server.shutdown()
        thread.join()


def test_download(shared: Run, client: Client, web: str) -> None:
    client.write('local')
    task = shared.one(**shell('cat file deep/er local'), input_staging=[
        copied(f'{web}/file', action=rp.DOWNLOAD), copied(f'{web}/file', 'deep/er', rp.DOWNLOAD),
        copied(f'file://{client.path}/local', action=rp.DOWNLOAD)])
    assert done(task).stdout == 'from the webfrom the weblocal'


def test_files_from_and_to_the_web(shared: Run, web: str) -> None:
    task = shared.one(**shell('cat file by_agent > all'), input_staging=[
        f'{web}/file', copied(f'{web}/file', 'by_agent', rp.COPY)], output_staging=[
            f'all > {web}/by/client', copied('all', f'{web}/by/agent/', rp.COPY)])
    done(task)
    assert Handler.put == dict.fromkeys(('/by/client', '/by/agent/all'), b'from the webfrom the web')


@pytest.mark.skipif('CI' not in os.environ and importlib.util.find_spec('globus_sdk') is None,
                    reason='globus-sdk is not installed')
def test_globus(shared: Run, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client copies both ways, and cancels the transfer of a task that is cancelled."""
    for name in ('in', 'slow'):
        client.write(f'there/{name}', name)
    with globus_service(client.path / 'there') as service:
        for name, value in service.environ.items():
            monkeypatch.setenv(name, value)
        task = shared.one(**shell('cat in in > out'), input_staging=[f'globus://{THERE}/in'],
                          output_staging=[f'out > globus://{THERE}/sub/'])
        done(task)
        assert (client.path / 'there' / 'sub' / 'out').read_text() == 'inin'
        service.outcomes['slow'] = {}
        task = shared.tmgr.submit_tasks(rp.TaskDescription({
            'executable': '/bin/true', 'input_staging': [f'globus://{THERE}/slow']}))
        wait_until(lambda: len(service.tasks) == 3)
        task.cancel()
        assert task.wait(timeout=30) == rp.CANCELED
        wait_until(lambda: list(service.tasks.values())[-1]['task']['status'] == 'FAILED')


def test_urls_are_refused_at_the_call(shared: Run) -> None:
    with pytest.raises(DescriptionError, match=r"unknown scheme 'ftp'; known are client://, .*https://, scp://, sftp://"):
        shared.tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true', 'input_staging': ['ftp://host/a']}))
    with pytest.raises(DescriptionError, match='must not hold a password'):
        shared.pilot.stage_in('sftp://me:word@host/a')


def test_download_of_what_does_not_exist(shared: Run, web: str) -> None:
    said = failed(shared.one(executable='/bin/true', input_staging=[copied(f'{web}/missing', action=rp.DOWNLOAD)]))
    assert f'{web}/missing' in said
    assert '404' in said
    assert rp.DOWNLOAD in said


def test_download_from_nowhere(shared: Run) -> None:
    task = shared.one(executable='/bin/true', input_staging=[copied('http://127.0.0.1:1/x', action=rp.DOWNLOAD)])
    said = failed(task)
    assert 'http://127.0.0.1:1/x' in said
    assert 'refused' in said


# what cannot be done


@pytest.mark.parametrize('action', [*ACTIONS, rp.TARBALL])
def test_missing_source(shared: Run, client: Client, action: str) -> None:
    """The task fails before it is run, with the directive, the path and the reason."""
    task = shared.one(**shell('touch ran'), input_staging=[copied(f'client:///{client.name}/none', 'target', action)])
    said = failed(task)
    assert action in said
    assert f'client:///{client.name}/none' in said
    assert f'{client.path}/none' in said
    assert 'No such file' in said
    assert task.exit_code is None
    assert not (Path(str(task.sandbox)) / 'ran').exists()


@pytest.mark.parametrize('action', ACTIONS)
def test_missing_result(shared: Run, client: Client, action: str) -> None:
    task = shared.one(executable='/bin/true', output_staging=[copied('none', f'client:///{client.name}/x', action)])
    said = failed(task)
    assert action in said
    assert f'{task.sandbox}/none' in said
    assert 'No such file' in said
    assert task.exit_code == 0
    assert not (client.path / 'x').exists()


@pytest.mark.parametrize('action', [*ACTIONS, rp.DOWNLOAD])
def test_failures_that_do_not_matter(shared: Run, client: Client, web: str, action: str) -> None:
    client.write('a')
    source = f'{web}/missing' if action == rp.DOWNLOAD else 'client:///none'
    values = {} if action == rp.DOWNLOAD else {'output_staging': [
        copied('none', f'{client.name}/none', action, flags=rp.NON_FATAL), f'a > {client.name}/b']}
    task = shared.one(executable='/bin/true', **values, input_staging=[
        copied(source, 'x', action, flags=rp.NON_FATAL | rp.CREATE_PARENTS), f'{client.name}/a'])
    assert listing(done(task)) == {'a'}
    assert 'output_staging' not in values or (client.path / 'b').exists()


@pytest.mark.parametrize('action', ACTIONS)
def test_missing_parents(shared: Run, client: Client, action: str) -> None:
    client.write('a')
    source = f'client:///{client.name}/a'
    task = shared.one(executable='/bin/true', input_staging=[copied(source, 'no/a', action, flags=rp.RECURSIVE)])
    said = failed(task)
    assert 'CREATE_PARENTS' in said
    assert '/no' in said


def test_source_that_cannot_be_read(shared: Run, client: Client) -> None:
    os.mkfifo(client.path / 'fifo')
    said = failed(shared.one(executable='/bin/true', input_staging=[f'{client.name}/fifo']))
    assert f'{client.path}/fifo' in said


def test_target_that_cannot_be_written(shared: Run, client: Client) -> None:
    client.write('a')
    client.write('file')
    task = shared.one(**shell('echo x > a'), output_staging=[f'a > {client.name}/file/below'])
    assert f'{client.path}/file' in failed(task)


# tasks that do not succeed


@pytest.mark.parametrize(('on_error', 'arrives'), [(False, False), (True, True)])
def test_output_of_failed_tasks(shared: Run, client: Client, on_error: bool, arrives: bool) -> None:
    task = shared.one(**shell('echo x > a; exit 3'), stage_on_error=on_error, output_staging=[
        f'a > {client.name}/transferred', copied('a', f'client:///{client.name}/copied', rp.COPY)])
    assert 'exit code: 3' in failed(task)
    assert task.exit_code == 3
    assert (client.path / 'transferred').exists() == (client.path / 'copied').exists() == arrives


def test_output_of_failed_tasks_that_is_not_there(shared: Run, client: Client) -> None:
    """The first reason is the one that counts."""
    task = shared.one(**shell('exit 3'), stage_on_error=True, output_staging=[
        f'a > {client.name}/a', copied('a', f'client:///{client.name}/b', rp.COPY)])
    assert 'exit code: 3' in failed(task)


def test_output_of_cancelled_tasks(shared: Run, client: Client) -> None:
    task = shared.tmgr.submit_tasks(rp.TaskDescription(shell(
        'echo x > a; touch ready; sleep 100', stage_on_error=True, output_staging=[
            f'a > {client.name}/transferred', copied('a', f'client:///{client.name}/copied', rp.COPY)])))
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    wait_until((Path(str(task.sandbox)) / 'ready').exists)
    task.cancel()
    assert task.wait(timeout=30) == rp.CANCELED
    assert sorted(os.listdir(client.path)) == ['copied', 'transferred']


def test_output_of_tasks_that_are_cleaned_up(shared: Run, client: Client) -> None:
    task = shared.one(**shell('echo x > a; echo y > b'), cleanup=True, output_staging=[
        f'a > {client.name}/a', copied('b', f'client:///{client.name}/b', rp.MOVE)])
    done(task)
    assert ((client.path / 'a').read_text(), (client.path / 'b').read_text()) == ('x\n', 'y\n')
    assert not Path(str(task.sandbox)).exists()


# cancellation


def test_cancel_while_the_agent_stages(shared: Run, web: str) -> None:
    task = shared.tmgr.submit_tasks(rp.TaskDescription(shell(
        'touch ran', input_staging=[copied(f'{web}/slow', action=rp.DOWNLOAD)])))
    assert Handler.asked.wait(30)
    assert task.wait(rp.AGENT_STAGING_INPUT, timeout=30) == rp.AGENT_STAGING_INPUT
    task.cancel()
    assert task.wait(timeout=30) == rp.CANCELED
    Handler.go.set()
    assert done(shared.one(executable='/bin/true'))
    assert 'cancel' in f'{task.exception}'
    assert not (Path(str(task.sandbox)) / 'ran').exists()


def test_cancel_while_the_client_stages(shared: Run, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from rp_api.staging import run as stager

    begun, go, run = threading.Event(), threading.Event(), stager.run

    def slow(*args: Any) -> list[str]:
        begun.set()
        go.wait(30)
        return run(*args)

    monkeypatch.setattr(stager, 'run', slow)
    client.write('a')
    task = shared.tmgr.submit_tasks(rp.TaskDescription(shell('touch ran', input_staging=[f'{client.name}/a'])))
    assert begun.wait(30)
    assert task.state == rp.TMGR_STAGING_INPUT
    task.cancel()
    assert task.wait(timeout=30) == rp.CANCELED
    go.set()
    assert done(shared.one(executable='/bin/true'))
    assert 'cancel' in f'{task.exception}'
    assert not (Path(str(task.sandbox)) / 'ran').exists()


def test_session_ends_while_files_are_on_their_way(run: Run, base: Path, web: str,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for what may never end: here a web server, and a file that the client copies."""
    from rp_api.staging import run as stager
    from rp_client.engine import engine

    begun, go = threading.Event(), threading.Event()

    def stuck(*args: Any) -> list[str]:
        begun.set()
        go.wait(50)
        return []

    monkeypatch.setattr(stager, 'run', stuck)
    monkeypatch.setattr(engine, 'FILES_TIMEOUT', 0.1)
    (base / 'a').touch()
    downloading, copying = run.tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/true', 'input_staging': staging}) for staging in (
            [copied(f'{web}/slow', action=rp.DOWNLOAD)], ['a'])])
    assert Handler.asked.wait(30)
    assert begun.wait(30)
    run.session.close()
    assert not go.is_set()
    assert [downloading.state, copying.state, run.pilot.state] == [rp.CANCELED] * 3
    assert 'cancelled' in run.pilot.log[-1]
    go.set()


def test_many_tasks_with_data(shared: Run, client: Client) -> None:
    client.write('in')
    tasks = shared.tmgr.submit_tasks([rp.TaskDescription(shell(
        f'cat in copy > out; echo {number} >> out', input_staging=[f'{client.name}/in', copied('in', 'copy', rp.COPY)],
        output_staging=[f'out > {client.name}/{number}', copied('out', 'again', rp.LINK)])) for number in range(60)])
    shared.tmgr.wait_tasks([task.uid for task in tasks], timeout=40)
    for task in tasks:
        done(task)
    for number in range(60):
        assert (client.path / str(number)).read_text() == f'inin{number}\n'


# pilots


def test_staging_to_and_from_a_running_pilot(shared: Run, client: Client) -> None:
    sandbox = Path(shared.pilot.pilot_sandbox)
    for name in 'abc':
        client.write(name)
    assert shared.pilot.stage_in(f'{client.name}/a > {client.name}/A') == [f'{sandbox}/{client.name}/A']
    assert shared.pilot.stage_in([copied(f'{client.path}/b', f'pilot:///{client.name}/B'),
                                  copied(f'client:///{client.name}/c', f'session:///{client.name}/', rp.TRANSFER)]) == [
        f'{sandbox}/{client.name}/B', f'{sandbox.parent}/{client.name}/']
    assert (sandbox / client.name / 'B').read_text() == 'b'
    assert (sandbox.parent / client.name / 'c').read_text() == 'c'
    task = shared.one(executable='/bin/cat', arguments=[f'$RP_PILOT_SANDBOX/{client.name}/A'])
    assert done(task).stdout == 'a'
    assert shared.pilot.stage_out([f'{client.name}/A > {client.name}/back', copied(
        f'pilot:///{task.uid}/{task.uid}.out', f'{client.name}/out')]) == [f'{client.path}/back', f'{client.path}/out']
    assert (client.path / 'back').read_text() == (client.path / 'out').read_text() == 'a'


def test_files_of_the_bootstrap(shared: Run, client: Client) -> None:
    """Tasks stage them from the sandbox of every pilot, with a batch system or without."""
    names = {'bootstrap_0.sh': 'script', 'bootstrap_0.prof': 'trace'}
    task = shared.one(**shell('head -n 1 script; grep -c bootstrap_0_start trace'),
                      input_staging=[copied(f'pilot:///{name}', target, rp.COPY) for name, target in names.items()])
    assert done(task).stdout == '#!/bin/sh\n1\n'


def test_staging_to_a_pilot_that_fails(shared: Run, client: Client) -> None:
    with pytest.raises(StagingError, match='No such file') as caught:
        shared.pilot.stage_in(copied(f'{client.name}/none', 'x'))
    assert caught.value.path == f'{client.path}/none'
    assert f'{client.name}/none' in caught.value.directive
    assert 'No such file' in caught.value.reason
    with pytest.raises(StagingError, match=f'{client.name}/none'):
        shared.pilot.stage_out(f'{client.name}/none')
    with pytest.raises(DescriptionError, match='sorce'):
        shared.pilot.stage_in({'sorce': 'x'})
    assert shared.pilot.stage_in([]) == []


def test_staging_of_pilot_descriptions(session: rp.Session, base: Path) -> None:
    (base / 'in').mkdir()
    for name in ('a', 'in/b', 'c'):
        (base / name).write_text(name)
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(
        base, input_staging=['a', 'in', {'source': str(base / 'c'), 'target': 'deep/C'}],
        output_staging=['result', 'deep', 'missing']))
    tmgr.add_pilots(pilot)
    task = tmgr.submit_tasks(rp.TaskDescription(shell('cd ..; cat a in/b deep/C > result')))
    task.wait(timeout=30)
    done(task)
    with pytest.raises(StagingError, match=r'staging_output\.tgz'):
        pilot.stage_out()
    pilot.cancel()
    assert pilot.stage_out() == [f'{base}/staging_output.tgz']
    with tarfile.open(base / 'staging_output.tgz') as archive:
        assert sorted(archive.getnames()) == ['deep', 'deep/C', 'result']
        result = archive.extractfile('result')
        assert result is not None
        assert result.read() == b'ain/bc'


def test_missing_input_of_a_pilot(session: rp.Session, base: Path) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, input_staging=['none']))
    tmgr.add_pilots(pilot)
    task = tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true'}))
    assert pilot.wait(timeout=30) == rp.FAILED
    assert f'{base}/none' in f'{pilot.exception}'
    assert 'No such file' in f'{pilot.exception}'
    assert task.wait(timeout=30) == rp.FAILED
    assert f'{base}/none' in f'{task.exception}'
