"""Staging from and to web servers: a real server with its own certificate, credentials, and uploads."""

from __future__ import annotations

import base64
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from rp_api.constants import COPY, DOWNLOAD, LINK, TARBALL, TRANSFER
from rp_api.errors import DescriptionError, StagingError
from rp_api.staging import expand, perform
from rp_api.staging.interruption import interruptible
from rp_api.staging.protocol import masked

LOGIN = base64.b64encode(b'me:s3cr/t').decode()


class Handler(BaseHTTPRequestHandler):
    """Keeps what is put; `/private/` needs a name and a password, `/elsewhere` leads to what the server names."""

    files: dict[str, bytes]
    elsewhere: str
    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(self.headers.get('Authorization', ''))
        if self.path == '/elsewhere':
            self._answer(302, Location=self.elsewhere)
        elif self.path.startswith('/private/') and self.headers.get('Authorization') != f'Basic {LOGIN}':
            self._answer(401)
        elif self.path in self.files:
            self._answer(200, self.files[self.path])
        else:
            self._answer(404)

    def do_PUT(self) -> None:
        size = int(self.headers['Content-Length'])
        content = self.rfile.read(size)
        if len(content) < size:   # the client has gone
            return
        if self.path.startswith('/readonly/'):
            self._answer(403)
            return
        self.files[self.path] = content
        self._answer(201)

    def _answer(self, status: int, body: bytes = b'', **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


class Site(NamedTuple):
    """A web server."""

    url: str
    handler: type[Handler]

    def login(self, name_and_password: str) -> str:
        """Its URL with a name and a password."""
        return self.url.replace('://', f'://{name_and_password}@')


def serve(certificate: Path | None = None) -> Iterator[Site]:
    handler = type('Own', (Handler,), {'files': {'/a': b'content of a'}, 'elsewhere': '', 'seen': []})
    with ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield Site(f'{"https" if certificate else "http"}://127.0.0.1:{server.server_port}', handler)
        server.shutdown()
        thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    yield from serve()


@pytest.fixture
def other() -> Iterator[Site]:
    yield from serve()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate for this host, signed by itself."""
    path = tmp_path / 'server.pem'
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
                    '-keyout', f'{path}.key', '-out', path, '-subj', '/CN=127.0.0.1', '-days', '2',
                    '-addext', 'subjectAltName=IP:127.0.0.1'], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f'{path}.key').read_text())
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[Site]:
    yield from serve(certificate)


def stage(source: str | Path, target: str | Path, action: str = TRANSFER) -> str:
    [directive] = expand({'source': str(source), 'target': str(target), 'action': action})
    return perform(directive, str(source), str(target))


def fails(source: str | Path, target: str | Path) -> StagingError:
    with pytest.raises(StagingError) as caught:
        stage(source, target)
    return caught.value


@pytest.mark.parametrize('action', [TRANSFER, COPY, DOWNLOAD])
def test_get(site: Site, tmp_path: Path, action: str) -> None:
    assert stage(f'{site.url}/a', tmp_path / 'deep' / 'b', action) == f'{tmp_path}/deep/b'
    assert (tmp_path / 'deep' / 'b').read_bytes() == b'content of a'
    assert [path.name for path in tmp_path.rglob('*')] == ['deep', 'b']


def test_a_name_in_a_url_cannot_lead_elsewhere(site: Site, tmp_path: Path) -> None:
    site.handler.files['/x%2F..%2F..%2Fevil'] = b'x'
    stage(f'{site.url}/x%2F..%2F..%2Fevil', f'{tmp_path}/deep/')
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob('*')] == ['deep', 'deep/evil']


@pytest.mark.parametrize('action', [TRANSFER, COPY])
def test_put(site: Site, tmp_path: Path, action: str) -> None:
    (tmp_path / 'b c').write_bytes(bytes(3 << 20))
    assert stage(tmp_path / 'b c', f'{site.url}/up/', action) == f'{site.url}/up/'
    assert site.handler.files['/up/b%20c'] == bytes(3 << 20)
    stage(tmp_path / 'b c', f'{site.url}/as/d', action)
    assert site.handler.files['/as/d'] == bytes(3 << 20)


def test_put_files_that_match(site: Site, tmp_path: Path) -> None:
    for name in ('1.txt', '2.txt', '3.dat'):
        (tmp_path / name).write_text(name)
    stage(tmp_path / '*.txt', f'{site.url}/up')
    assert {path for path in site.handler.files if path.startswith('/up')} == {'/up/1.txt', '/up/2.txt'}


def test_put_that_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / 'a').write_text('a')
    error = fails(tmp_path / 'a', f'{site.url}/readonly/a')
    assert (error.path, error.reason) == (f'{site.url}/readonly/a', 'HTTP status 403 Forbidden')
    error = fails(tmp_path, f'{site.url}/a')
    assert (error.path, error.reason) == (str(tmp_path), 'A directory cannot be sent to a web server')
    error = fails(tmp_path / 'none', f'{site.url}/a')
    assert (error.path, error.reason) == (f'{tmp_path}/none', 'No such file or directory')


def test_a_server_must_be_known(secure: Site, certificate: Path, tmp_path: Path,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    assert 'CERTIFICATE_VERIFY_FAILED' in fails(f'{secure.url}/a', tmp_path / 'b').reason
    monkeypatch.setenv('SSL_CERT_FILE', str(certificate))
    stage(f'{secure.url}/a', tmp_path / 'b')
    assert (tmp_path / 'b').read_bytes() == b'content of a'
    stage(tmp_path / 'b', f'{secure.url}/b')
    assert secure.handler.files['/b'] == b'content of a'


def test_a_proxy_is_used(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.handler.files['http://host.invalid/x'] = b'through the proxy'
    monkeypatch.setenv('http_proxy', site.url)
    stage('http://host.invalid/x', tmp_path / 'x')
    assert (tmp_path / 'x').read_bytes() == b'through the proxy'


def test_a_password_is_sent_to_its_host_alone(site: Site, other: Site, tmp_path: Path) -> None:
    site.handler.files['/private/a'] = b'private'
    stage(f'{site.login("me:s3cr%2Ft")}/private/a', tmp_path / 'a')
    assert (tmp_path / 'a').read_bytes() == b'private'
    site.handler.elsewhere = f'{other.url}/a'
    stage(f'{site.login("me:s3cr%2Ft")}/elsewhere', tmp_path / 'b')
    assert (site.handler.seen[-1], other.handler.seen) == (f'Basic {LOGIN}', [''])


def test_no_error_shows_a_secret(site: Site, tmp_path: Path) -> None:
    url = f'{site.login("me:wrong")}/private/a'
    error = fails(f'{url}?signature=abc', tmp_path / 'a')
    assert error.path == f'{site.login("me:***")}/private/a?***'
    assert error.reason == 'HTTP status 401 Unauthorized'
    assert not {'wrong', 'abc'} & set(str(error).replace(':', ' ').replace('@', ' ').replace('=', ' ').split())
    with pytest.raises(DescriptionError) as caught:
        expand({'source': url, 'target': 'b', 'action': LINK})
    assert 'wrong' not in str(caught.value)


@pytest.mark.parametrize(('text', 'shown'), [
    ('http://a:b@c/d', 'http://a:***@c/d'), ('sftp://a:b@c@d/e', 'sftp://a:***@d/e'), ('http://:b@c', 'http://:***@c'),
    ('Copy https://h/p?q=1&r=2 > b', 'Copy https://h/p?*** > b'),
    ("{'source': 'http://h/p?q'}", "{'source': 'http://h/p?***'}"),
    ('task:///a?.dat', 'task:///a?.dat'), ('http://h:80/a@b', 'http://h:80/a@b'), ('a:b@c', 'a:b@c')])
def test_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_cancelled_transfers_stop(site: Site, tmp_path: Path) -> None:
    (tmp_path / 'a').write_text('a')
    with interruptible(lambda: True):
        assert fails(f'{site.url}/a', tmp_path / 'b').reason == 'The transfer was interrupted'
        assert fails(tmp_path / 'a', f'{site.url}/b').reason == 'The transfer was interrupted'
    assert not (tmp_path / 'b').exists()
    assert '/b' not in site.handler.files
    stage(f'{site.url}/a', tmp_path / 'b')


@pytest.mark.parametrize(('directive', 'reason'), [
    ({'source': 'http://h/a', 'action': LINK}, 'action Link needs paths on one host; .* Transfer, Copy, Download'),
    ({'source': 'a', 'target': 'http://h/a', 'action': TARBALL}, 'action Tarball needs paths'),
    ('http://h/a > sftp://h/a', 'source and target are on other hosts'),
    ('http:///a', 'names no host'),
    ('http://[x/a > b', 'is not a URL: Invalid IPv6 URL'),
    ('http://h:port/a', 'is not a URL: Port could not be cast')])
def test_directives_that_cannot_succeed_are_refused(directive: object, reason: str) -> None:
    with pytest.raises(DescriptionError, match=reason):
        expand(directive)
