"""Staging with URLs of hosts that are reached by ssh: by the protocol itself, and in sessions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from batch_pilots import use
from ssh_hosts import SshHosts
from staging_support import content, fails, stage

import radical.pilot as rp
from rp_api.constants import COPY, TRANSFER
from rp_api.errors import DescriptionError
from rp_api.staging import expand
from rp_api.staging.interruption import interruptible

ODD = ["it's \"☃\" $HOME `id` 100%25 a;b\\c,", '-rf', '[*?]', '~', '# x', '!x']


@pytest.fixture(autouse=True)
def _reached(server: SshHosts, monkeypatch: pytest.MonkeyPatch) -> None:
    use(server.environ, monkeypatch)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A directory on the other host, which has the same files."""
    path = tmp_path / 'there'
    path.mkdir()
    return path


@pytest.fixture
def here(tmp_path: Path) -> Path:
    path = tmp_path / 'here'
    path.mkdir()
    return path


def url(path: Path | str, scheme: str = 'sftp') -> str:
    return f'{scheme}://localhost{path}'


@pytest.mark.parametrize('scheme', ['sftp', 'scp', 'SFTP'])
def test_a_file_there_and_back(here: Path, there: Path, scheme: str) -> None:
    (here / 'a').write_text('a')
    (here / 'a').chmod(0o750)
    target = url(there / 'x' / 'y' / 'b', scheme)
    assert stage(here / 'a', target, action=COPY) == target
    assert content(there) == {'x/y/b': 'a'}
    assert (there / 'x/y/b').stat().st_mode & 0o777 == 0o750
    assert stage(target, here / 'new' / 'c', action=TRANSFER) == f'{here}/new/c'
    assert content(here) == {'a': 'a', 'new/c': 'a'}
    assert (here / 'new/c').stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize('name', ODD)
def test_names_with_odd_characters(here: Path, there: Path, name: str) -> None:
    (here / name).write_text(name)
    (here / 'other').write_text('other')
    stage(here / name, url(there / f'{name}.dir' / name))
    assert content(there) == {f'{name}.dir/{name}': name}
    if not {'*', '['} & set(name):   # they are patterns in sources
        stage(url(there / f'{name}.dir' / name), f'{here}/back/')
        assert content(here / 'back') == {name: name}


def test_files_are_replaced(here: Path, there: Path) -> None:
    (here / 'a').write_text('new')
    (there / 'a').write_text('old')
    stage(here / 'a', url(there / 'a'))
    assert content(there) == {'a': 'new'}
    (here / 'a').write_text('old')
    stage(url(there / 'a'), here / 'a')
    assert content(here) == {'a': 'new'}


def test_a_target_that_is_a_directory(here: Path, there: Path) -> None:
    (here / 'a').write_text('a')
    (there / 'full').mkdir()
    (there / 'full' / 'x').write_text('x')
    (there / 'full' / 'a').write_text('old')
    stage(here / 'a', url(there / 'full'))
    stage(here / 'a', f'{url(there)}/new/')
    assert content(there) == {'full/x': 'x', 'full/a': 'a', 'new/a': 'a'}
    stage(url(there / 'full' / 'x'), here)
    assert content(here) == {'a': 'a', 'x': 'x'}


def test_directories(here: Path, there: Path) -> None:
    (here / 'tree' / 'sub').mkdir(parents=True)
    (here / 'tree' / '1').write_text('1')
    (here / 'tree' / 'sub' / '2').write_text('2')
    stage(here / 'tree', url(there / 'copy'))
    assert content(there) == {'copy/1': '1', 'copy/sub/2': '2'}
    (there / 'copy' / '3').write_text('3')
    stage(here / 'tree', url(there / 'copy'))   # merged
    stage(here / 'tree', f'{url(there)}/copy/')
    assert content(there / 'copy') == {'1': '1', 'sub/2': '2', '3': '3', 'tree/1': '1', 'tree/sub/2': '2'}
    stage(url(there / 'copy' / 'tree'), here / 'back')
    assert content(here / 'back') == {'1': '1', 'sub/2': '2'}
    stage(f'{url(there)}/copy/', here / 'back')
    assert (here / 'back' / 'tree' / '1').exists()
    assert (here / 'back' / '3').exists()


def test_patterns(here: Path, there: Path) -> None:
    for name in ('1.txt', '2.txt', '3.dat'):
        (there / name).write_text(name)
    assert stage(url(there / '*.txt'), here / 'in') == f'{here}/in'
    assert set(content(here)) == {'in/1.txt', 'in/2.txt'}
    stage(here / 'in' / '*.txt', url(there / 'out'))
    assert set(content(there / 'out')) == {'1.txt', '2.txt'}
    error = fails(url(there / '*.none'), here / 'in')
    assert 'not found' in error.reason
    assert expand(f'{url(there)}/a?.txt')[0]['target'] == '.'


def test_home_directory(here: Path) -> None:
    (here / 'a').write_text('a')
    name = f'rp.test.{os.getpid()}'
    try:
        stage(here / 'a', f'sftp://localhost/~/{name}')
        assert (Path.home() / name).read_text() == 'a'
        stage(f'sftp://localhost/~/{name}', here / 'b')
        assert (here / 'b').read_text() == 'a'
    finally:
        (Path.home() / name).unlink()


def test_failures(here: Path, there: Path) -> None:
    (here / 'a').write_text('a')
    error = fails(url(there / 'none'), here / 'b')
    assert error.path == url(there / 'none')
    assert f'"{there}/none" not found' in error.reason
    assert 'No such file' in fails(here / 'a', url(there / 'no' / 'b'), flags=0).reason
    (there / 'file').write_text('')
    assert fails(here / 'a', url(there / 'file' / 'b')).path == url(there / 'file' / 'b')
    (there / 'dir' / 'a').mkdir(parents=True)
    (there / 'dir' / 'a' / 'x').write_text('x')
    assert 'Failure' in fails(here / 'a', url(there / 'dir')).reason   # a directory is never replaced by a file
    assert content(there) == {'file': '', 'dir/a/x': 'x'}
    assert content(here) == {'a': 'a'}
    assert fails('sftp://host.invalid/x', here / 'b').path == 'sftp://host.invalid/x'


def test_links_in_directories_are_not_lost_silently(here: Path, there: Path) -> None:
    for directory in (here, there):
        (directory / 'tree').mkdir()
        (directory / 'tree' / 'link').symlink_to('nowhere')
    assert 'not a regular file' in fails(here / 'tree', url(there / 'copy')).reason
    assert 'not a regular file' in fails(url(there / 'tree'), here / 'copy').reason


def test_cancelled_transfers_stop(here: Path, there: Path) -> None:
    (there / 'a').write_text('a')
    with interruptible(lambda: True):
        assert fails(url(there / 'a'), here / 'b').reason == 'The transfer was interrupted'
    assert content(here) == {}


@pytest.mark.parametrize(('address', 'reason'), [
    ('sftp://me:word@host/x', 'must not hold a password'), ('sftp://-oProxyCommand=x/y', 'is not SCHEME'),
    ('sftp://-x/y', 'begins with a hyphen'), ('scp://-l@host/y', 'begins with a hyphen'),
    ('sftp://host', 'is not SCHEME'), ('sftp://host:x/y', 'is not SCHEME'), ('sftp://host/a\nb', 'is not SCHEME')])
def test_urls_that_are_refused(address: str, reason: str) -> None:
    with pytest.raises(DescriptionError, match=reason) as caught:
        expand({'source': address, 'target': 'x'})
    assert 'word@' not in str(caught.value)


def test_tasks_and_pilots(base: Path, there: Path) -> None:
    """Client and agent reach the host, and say what failed."""
    (there / 'in').write_text('from there')
    inputs = [f'{url(there / "in")} > 1', {'source': url(there / 'in'), 'target': '2', 'action': rp.DOWNLOAD},
              {'source': url(there / 'in', 'scp'), 'target': '3', 'action': rp.COPY}]
    with rp.Session(cfg={'base': str(base)}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        pilot = pmgr.submit_pilots(rp.PilotDescription({'resource': 'local.exact', 'cores': 1, 'runtime': 10,
                                                        'input_staging': [url(there / 'in')]}))
        tmgr.add_pilots(pilot)
        done, *failed = tmgr.submit_tasks([rp.TaskDescription({
            'executable': '/bin/sh', 'arguments': ['-c', 'cat 1 2 3 ../in > all'], 'input_staging': inputs,
            'output_staging': [f'all > {url(there)}/by/client', {
                'source': 'all', 'target': url(there / 'by' / 'agent'), 'action': rp.COPY}]}), *(
                    rp.TaskDescription({'executable': '/bin/true', 'input_staging': [{
                        'source': url(there / 'none'), 'action': action}]}) for action in (rp.TRANSFER, rp.COPY))])
        tmgr.wait_tasks(timeout=40)
        assert done.state == rp.DONE, (done.exception, done.stderr)
        assert content(there / 'by') == dict.fromkeys(('client', 'agent'), 4 * 'from there')
        for task in failed:
            assert task.state == rp.FAILED
            assert f'failed on {url(there / "none")}: File "{there}/none" not found.' in str(task.exception)
        assert pilot.stage_in(f'{url(there / "in")} > new/') == [f'{pilot.pilot_sandbox}/new/']
        assert pilot.stage_out(f'new/in > {url(there / "out")}') == [url(there / 'out')]
        assert (there / 'out').read_text() == 'from there'
