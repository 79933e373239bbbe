"""Staging with Globus: the real SDK, and a service that answers with documents as the real one does."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from globus_service import CLOSED, HERE, THERE, TOKEN, Service, globus_service
from staging_support import content, fails, stage

from rp_api.constants import COPY, TARBALL, TRANSFER
from rp_api.errors import DescriptionError
from rp_api.staging import Sandboxes, expand, globus, resolve
from rp_api.staging.interruption import interruptible
from rp_api.staging.run import check_locations

pytestmark = pytest.mark.skipif('CI' not in os.environ and importlib.util.find_spec('globus_sdk') is None,
                                reason='globus-sdk is not installed')


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name in list(os.environ):
        if name.startswith('GLOBUS_'):
            monkeypatch.delenv(name)
    monkeypatch.setattr(globus, 'POLL_S', (0.01, 30.0))
    (tmp_path / 'there').mkdir()
    with globus_service(tmp_path / 'there') as found:
        for name, value in found.environ.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def there(service: Service) -> Path:
    """The directory of the other collection."""
    return service.roots[THERE]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    path = tmp_path / 'here'
    path.mkdir()
    return path


def url(path: str, collection: str = THERE) -> str:
    return f'globus://{collection}/{path}'


@pytest.mark.parametrize('action', [TRANSFER, COPY])
def test_files_there_and_back(service: Service, here: Path, there: Path, action: str) -> None:
    (here / 'a').write_text('a')
    target = url('data/b 100%25')
    assert stage(here / 'a', target, action=action) == target
    assert content(there) == {'data/b 100%25': 'a'}
    stage(here / 'a', url('data/'), action=action)
    stage(here / 'a', url('data'), action=action)   # an existing directory
    assert content(there) == {'data/b 100%25': 'a', 'data/a': 'a'}
    assert stage(target, here / 'deep' / 'c', action=action) == f'{here}/deep/c'
    stage(target.replace('globus:', 'go:'), f'{here}/in/', action=action)
    assert content(here) == {'a': 'a', 'deep/c': 'a', 'in/b 100%25': 'a'}
    first = next(iter(service.tasks.values()))['wanted']
    assert {name: first[name] for name in ('source_endpoint', 'destination_endpoint', 'label', 'DATA')} == {
        'source_endpoint': HERE, 'destination_endpoint': THERE, 'label': 'RADICAL-Pilot', 'DATA': [{
            'DATA_TYPE': 'transfer_item', 'source_path': f'{here}/a', 'destination_path': '/data/b 100%25',
            'recursive': False}]}


def test_directories(here: Path, there: Path) -> None:
    (here / 'tree' / 'sub').mkdir(parents=True)
    (here / 'tree' / 'sub' / '1').write_text('1')
    (here / 'tree' / 'link').symlink_to('sub/1')
    stage(here / 'tree', url('copy'))
    stage(here / 'tree', url('copy'))   # merged
    stage(url('copy'), here / 'back')
    assert content(there / 'copy') == content(here / 'back') == {'sub/1': '1', 'link': '1'}
    assert (here / 'back' / 'link').is_symlink()


def test_between_collections(service: Service, there: Path) -> None:
    """No collection of this host is needed."""
    (there / 'a').write_text('a')
    assert stage(url('a'), url('b/')) == url('b/')
    assert content(there) == {'a': 'a', 'b/a': 'a'}
    assert resolve(url('a'), 'task', Sandboxes(client='/')) == url('a')


def test_parents(here: Path, there: Path) -> None:
    (here / 'a').write_text('a')
    error = fails(here / 'a', url('no/a'), flags=0)
    assert (error.path, error.reason) == (url('no/a'), 'No directory /no, and the flag CREATE_PARENTS is not set')
    (there / 'no').mkdir()
    stage(here / 'a', url('no/a'), flags=0)


def test_failures_have_the_words_of_globus(service: Service, here: Path, there: Path) -> None:
    for name in ('quota', 'expired', 'silent'):
        (there / name).write_text('x')
    service.outcomes.update({
        'quota': {'status': 'FAILED', 'fatal_error': {'code': 'QUOTA_EXCEEDED', 'description': 'No space is left'}},
        'expired': {'status': 'INACTIVE', 'nice_status': 'CREDENTIALS_EXPIRED', 'nice_status_details': 'log in again'},
        'silent': {'status': 'FAILED'}})
    assert fails(url('none'), here / 'x').reason == 'No such file or directory'
    uids: dict[str, str] = {}
    for name, status, said in (('quota', 'FAILED', 'No space is left (QUOTA_EXCEEDED)'),
                               ('expired', 'INACTIVE', 'log in again (CREDENTIALS_EXPIRED)'),
                               ('silent', 'FAILED', 'connect failed: No route to host')):
        error = fails(url(name), here / 'x')
        uids[name] = list(service.tasks)[-1]
        assert (error.path, error.reason) == (url(name), f'Globus transfer {uids[name]} is {status}: {said}')
    denied = fails(url('a', CLOSED), here / 'x')
    assert denied.reason == 'Globus: Denied by endpoint, Error (list) (EndpointPermissionDenied)'
    assert content(here) == {}


def test_transfers_without_progress_are_cancelled(service: Service, here: Path, there: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(globus, 'FAULT_TIMEOUT', 0.0)
    (there / 'a').write_text('x')
    service.outcomes['a'] = {'faults': 3, 'nice_status': 'PERMISSION_DENIED', 'nice_status_details': 'not yours'}
    assert fails(url('a'), here / 'x').reason.endswith('makes no progress: not yours (PERMISSION_DENIED)')
    assert service.requests[-1][:2] == ('POST', f'/v0.10/task/{list(service.tasks)[-1]}/cancel')


def test_transfers_of_cancelled_tasks_are_cancelled(service: Service, here: Path, there: Path) -> None:
    (there / 'a').write_text('x')
    service.outcomes['a'] = {}
    with interruptible(lambda: any(known['seen'] > 3 for known in service.tasks.values())):
        assert fails(url('a'), here / 'x').reason == 'The transfer was interrupted'
    (known,) = service.tasks.values()
    assert known['task']['fatal_error']['code'] == 'CANCELED'


def test_credentials(service: Service, here: Path, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (there / 'a').write_text('a')
    monkeypatch.setenv('GLOBUS_ACCESS_TOKEN', 'old')
    error = fails(url('a'), here / 'a')
    assert error.reason == 'Globus: Token is not active (AuthenticationFailed)'
    monkeypatch.setenv('GLOBUS_CLIENT_ID', HERE)
    for name, authorization in (('GLOBUS_CLIENT_SECRET', 'Basic '), ('GLOBUS_REFRESH_TOKEN', '')):
        with monkeypatch.context() as patch:
            patch.setenv(name, 'secret')
            service.requests.clear()
            stage(url('a'), here / 'a')
            method, path, sent = service.requests[0]
            assert (method, path, sent[:6]) == ('POST', '/v2/oauth2/token', authorization)
            assert {sent for _, _, sent in service.requests[1:]} == {f'Bearer {TOKEN}'}


def test_what_is_missing_is_said_at_the_call(service: Service, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    directives = expand(url('a'))
    check_locations(directives)
    monkeypatch.delenv('GLOBUS_ACCESS_TOKEN')
    with pytest.raises(DescriptionError, match='globus:// needs credentials in the environment: GLOBUS_CLIENT_ID with'):
        check_locations(directives)
    assert 'needs credentials' in fails(url('a'), url('b')).reason
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(DescriptionError, match=r'is not installed on this host: pip install "rp-client\[globus\]"'):
        check_locations(directives)
    assert 'pip install "rp-client[globus]"' in fails(url('a'), here / 'a').reason


def test_a_host_without_a_collection(service: Service, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('RADICAL_PILOT_GLOBUS_ENDPOINT')
    monkeypatch.setenv('HOME', str(here))
    assert 'set RADICAL_PILOT_GLOBUS_ENDPOINT' in fails(url('a'), here / 'a').reason


@pytest.mark.parametrize(('directive', 'reason'), [
    ('globus://tutorial/a', 'is not globus://UUID/PATH'), (f'globus://{HERE}', 'is not globus://UUID/PATH|required'),
    ({'source': f'globus://{HERE}/', 'target': 'a'}, 'names no file or directory'),
    (f'globus://{HERE}/a > sftp://host/a', 'source and target are on other hosts'),
    (f'sftp://host/a > globus://{HERE}/a', 'source and target are on other hosts'),
    ({'source': f'globus://{HERE}/a', 'action': TARBALL}, 'action Tarball needs paths')])
def test_directives_that_cannot_succeed_are_refused(directive: object, reason: str) -> None:
    with pytest.raises(DescriptionError, match=reason):
        expand(directive)
