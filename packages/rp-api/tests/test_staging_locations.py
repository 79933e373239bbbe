"""Where the URLs of staging directives lead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.constants import COPY, DOWNLOAD, LINK, MOVE, STAGING_ACTIONS, TARBALL, TRANSFER
from rp_api.errors import DescriptionError
from rp_api.staging import Sandboxes, acts_on_client, bases, resolve

SANDBOXES = Sandboxes(client='/client', resource='/scratch/rps', session='/scratch/rps/s0',
                      pilot='/scratch/rps/s0/p0', task='/scratch/rps/s0/p0/t0')


@pytest.mark.parametrize(('url', 'path'), [
    ('client:///a/b', '/client/a/b'),
    ('client://a/b', '/client/a/b'),
    ('endpoint:///etc/x', '/etc/x'),
    ('resource:///x', '/scratch/rps/x'),
    ('session:///x', '/scratch/rps/s0/x'),
    ('pilot:///x', '/scratch/rps/s0/p0/x'),
    ('pilot://x', '/scratch/rps/s0/p0/x'),
    ('task:///x', '/scratch/rps/s0/p0/t0/x'),
    ('unit:///x', '/scratch/rps/s0/p0/t0/x'),
    ('staging:///x', '/scratch/rps/s0/p0/staging_area/x'),
    ('TASK:///x', '/scratch/rps/s0/p0/t0/x'),
    ('task:///dir/', '/scratch/rps/s0/p0/t0/dir/'),
    ('task:///', '/scratch/rps/s0/p0/t0/'),
    ('task://', '/scratch/rps/s0/p0/t0/'),
    ('task:////x', '/scratch/rps/s0/p0/t0/x'),
    ('task:///100%25 a+b?c#d', '/scratch/rps/s0/p0/t0/100%25 a+b?c#d'),
    ('file:///abs/x', '/abs/x'),
    ('file://localhost/abs/x', '/abs/x'),
    ('/abs/x', '/abs/x'),
    ('/', '/'),
    ('http://host/a%20b', 'http://host/a%20b'),
    ('https://host:80/x', 'https://host:80/x'),
    ('SFTP://me@host/x', 'SFTP://me@host/x'),
    ('task:///a\nb', '/scratch/rps/s0/p0/t0/a\nb'),
])
def test_urls(url: str, path: str) -> None:
    assert resolve(url, 'client', SANDBOXES) == path


@pytest.mark.parametrize(('url', 'name'), [
    ('x', 'x'), ('dir/x', 'dir/x'), ('./x', './x'), ('', ''), ('.', '.'), ('pwd:///x', 'x'), ('pwd://x', 'x'),
    ('a:b', 'a:b'), ('12:30/x', '12:30/x'), ('localhost', 'localhost'), ('me@host', 'me@host')])
def test_relative_paths_belong_to_the_base(url: str, name: str) -> None:
    assert resolve(url, 'client', SANDBOXES) == f'/client/{name}'
    assert resolve(url, 'task', SANDBOXES) == f'/scratch/rps/s0/p0/t0/{name}'
    assert resolve(url, 'pilot', SANDBOXES) == f'/scratch/rps/s0/p0/{name}'


def test_objects_with_text() -> None:
    class Url:
        def __str__(self) -> str:
            return 'task:///x'

    assert resolve(Url(), 'client', SANDBOXES) == '/scratch/rps/s0/p0/t0/x'


@pytest.mark.parametrize('url', [
    'client://localhost/x', 'task://me@host/x', 'pilot://host:22/x', 'pwd://localhost/x'])
def test_hosts_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match='must not name a host'):
        resolve(url, 'client', SANDBOXES)


@pytest.mark.parametrize('url', ['file://host/x', 'file://x', 'file://', 'file://localhost'])
def test_file_urls_are_absolute_and_local(url: str) -> None:
    with pytest.raises(DescriptionError, match='must be an absolute path on this host'):
        resolve(url, 'client', SANDBOXES)


def test_unknown_scheme_lists_the_known() -> None:
    with pytest.raises(DescriptionError, match=r"'ftp'; known are client://, .*gsisftp://, .*https://, scp://, sftp://"):
        resolve('ftp://host/x', 'client', SANDBOXES)


@pytest.mark.parametrize(('url', 'base'), [
    ('task:///x', 'client'), ('x', 'task'), ('staging:///x', 'client')])
def test_sandbox_that_there_is_none_of(url: str, base: str) -> None:
    with pytest.raises(DescriptionError, match='is not available here'):
        resolve(url, base, Sandboxes(client='/client'))


def test_who_acts() -> None:
    assert [action for action in STAGING_ACTIONS if acts_on_client(action)] == [TRANSFER, TARBALL]
    assert not any(map(acts_on_client, (COPY, LINK, MOVE, DOWNLOAD)))


def test_bases() -> None:
    assert bases(TRANSFER, output=False) == ('client', 'task')
    assert bases(TRANSFER, output=True) == ('task', 'client')
    assert bases(COPY, output=False) == bases(COPY, output=True) == ('task', 'task')


@given(st.text(), st.sampled_from(['client', 'task', 'pilot']))
def test_paths_are_absolute_or_refused(text: str, base: str) -> None:
    try:
        path = resolve(text, base, SANDBOXES)
    except DescriptionError:
        return
    assert path.startswith('/') or '://' in path
