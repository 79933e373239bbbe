"""Which access file stands for which hub, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rp_api.coordination.service import access as hub_access
from rp_api.coordination.service.access import HubAccess
from rp_api.errors import CoordinationError
from rp_api.transport import keys

HERE = hub_access.short_name()


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_BASE', str(tmp_path))


def an_access(url: str, host: str = HERE) -> HubAccess:
    pair = keys.generate()
    return HubAccess(url, host, '/sessions', keys.generate().public.decode(), pair.public.decode(),
                     pair.secret.decode())


@pytest.mark.parametrize('url', ['tcp://127.0.0.1:4242', 'tcp://localhost:4242', f'tcp://{HERE}:4242',
                                 f'tcp://{HERE}.example.org:4242'])
def test_a_hub_on_this_host_has_many_names(url: str) -> None:
    access = an_access('tcp://127.0.0.1:4242')
    hub_access.write(access)
    assert hub_access.find(url) == (access, access.url)


def test_a_hub_elsewhere_is_reached_by_the_name_that_is_given() -> None:
    access = an_access('tcp://10.0.0.1:4242', 'login1')
    hub_access.write(access)
    for url in ('tcp://login1:4242', 'tcp://login1.example.org:4242', 'tcp://10.0.0.1:4242'):
        assert hub_access.find(url) == (access, url)


@pytest.mark.parametrize('host', ['login1', HERE])
def test_a_copy_for_a_tunnel(host: str) -> None:
    access = an_access('tcp://10.0.0.1:4242', host)
    hub_access.write(access).rename(hub_access.path_of('localhost', 5555))
    assert hub_access.find('tcp://localhost:5555') == (access, 'tcp://localhost:5555')


@pytest.mark.parametrize('url', ['', 'login1:4242', 'tcp://login1', 'tcp://login1:', 'tcp://:1', 'tcp://a:0', 'tcp://a:65536',
                                 'ipc:///x:1', 'tcp://a/../b:1', 'tcp://*:1'])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(CoordinationError, match='allowed is tcp://<host>:<port>'):
        hub_access.find(url)


def test_files_that_do_not_fit() -> None:
    path = hub_access.write(an_access('tcp://10.0.0.1:4242', 'login1'))
    for content in ('', '[]', '{}', '{"url": 1}', path.read_text().replace('tcp:', 'ipc:')):
        path.write_text(content)
        with pytest.raises(CoordinationError, match=r'is not the access file|is not the address'):
            hub_access.read(path)
        assert list(hub_access.all_known()) == []
    path.unlink()
    path.symlink_to(os.devnull)
    with pytest.raises(CoordinationError, match='symbolic link'):
        hub_access.read(path)


def test_files_are_whole_and_private() -> None:
    access = an_access('tcp://10.0.0.1:4242', 'login1')
    for _ in range(2):
        path = hub_access.write(access)
    assert hub_access.read(path) == access
    assert [file.name for file in path.parent.iterdir()] == ['login1-4242.json']
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert access.secret not in repr(access)
