"""Files that an application stages to and from a host which it reaches by ssh only."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from batch_pilots import Managers, platform, sandbox, use
from ssh_hosts import SshHosts

import radical.pilot as rp
from rp_api.errors import StagingError


@pytest.fixture
def managers(server: SshHosts, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managers]:
    """An open session whose platform `test.machine` is a host that is reached by ssh."""
    use(server.environ | platform(base, 'ssh://localhost/', 'FORK', filesystem_endpoint='sftp://localhost/',
                                  fake_resources=True), monkeypatch)
    with rp.Session(cfg={'base': str(base)}) as session:
        yield Managers(session)


def test_files_there_and_back(managers: Managers, base: Path) -> None:
    for name in ('of the pilot', 'a', 'b1', 'b2', 'c'):
        (base / name).write_text(f'{name}\n')
    pilot = managers.active(input_staging=['of the pilot'])
    assert not pilot._record.directories.here
    assert sandbox(pilot).stat().st_mode & 0o777 == 0o700
    (task,) = managers.tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', 'cat a d/b* c "../of the pilot" >out; mkdir e; echo 1 >e/1'],
        'input_staging': ['a', 'b* > d/', {'source': 'c', 'action': rp.TARBALL}, f'sftp://localhost{base}/b2 > url/'],
        'output_staging': ['out > result', 'e', f'{base}/*1 > found/', f'url/b2 > sftp://localhost{base}/sent/']})])
    managers.tmgr.wait_tasks(timeout=40)
    assert task.state == rp.DONE, (task.exception, task.stderr)
    assert (base / 'result').read_text() == 'a\nb1\nb2\nc\nof the pilot\n'
    assert (base / 'e' / '1').read_text() == '1\n'
    assert (base / 'found' / 'b1').exists()
    assert (base / 'sent' / 'b2').read_text() == 'b2\n'
    assert pilot.stage_in({'source': 'a', 'target': 'pilot:///x/y', 'flags': rp.CREATE_PARENTS}) == [
        f'{pilot._record.directories.pilot}/x/y']
    pilot.stage_out('x > back')
    assert (base / 'back' / 'y').read_text() == 'a\n'
    assert not list(Path(tempfile.gettempdir()).glob('rp.stage.*'))


def test_files_that_are_not_there(managers: Managers, base: Path) -> None:
    pilot = managers.active()
    tasks = managers.tmgr.submit_tasks([rp.TaskDescription({'executable': '/bin/true', kind: ['none']})
                                        for kind in ('input_staging', 'output_staging')])
    managers.tmgr.wait_tasks(timeout=40)
    assert {task.state for task in tasks} == {rp.FAILED}
    assert f'failed on {base}/none: No such file' in str(tasks[0].exception)
    assert f'failed on {pilot._record.directories.pilot}/{tasks[1].uid}/none: No such file' in str(tasks[1].exception)
    with pytest.raises(StagingError, match='none: No such file'):
        pilot.stage_out('none')


def test_output_of_tasks_on_another_host(managers: Managers) -> None:
    """All of it comes, also the file of an absolute path, and no copy stays."""
    pilot = managers.active()
    (task,) = managers.tmgr.submit_tasks([rp.TaskDescription({
        'executable': '/bin/sh', 'arguments': ['-c', 'seq 5000; seq 3 >&2; exit 1'],
        'stderr': f'{pilot._record.directories.pilot}/errors [1]'})])
    managers.tmgr.wait_tasks(timeout=40)
    assert task.read_stdout() == ''.join(f'{number}\n' for number in range(1, 5001))
    assert task.read_stderr() == '1\n2\n3\n'
    assert task.error is not None
    assert task.error.path == f'{pilot._record.directories.pilot}/errors [1]'
    with task.open_stdout() as file:
        assert file.readline() == b'1\n'
        assert not list(Path(tempfile.gettempdir()).glob('rp.stage.*'))
    sandbox(pilot).joinpath(task.uid, f'{task.uid}.out').unlink()
    with pytest.raises(FileNotFoundError, match=f'{task.uid} is FAILED and has not written this file'):
        task.read_stdout()
