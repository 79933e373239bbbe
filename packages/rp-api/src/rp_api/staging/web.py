"""Staging over http and https: sources are fetched with GET, targets are written with PUT.

Proxies and certificates are those of Python's `urllib`: the environment variables `http_proxy`, `https_proxy`,
`no_proxy`, `SSL_CERT_FILE` and `SSL_CERT_DIR`.
"""

from __future__ import annotations

import base64
import errno
import http.client
import io
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from rp_api.errors import DescriptionError
from rp_api.staging.files import fault
from rp_api.staging.interruption import check_interruption
from rp_api.staging.protocol import Transport, masked, transport

TIMEOUT = 60.0
"""Seconds without an answer or data from the server after which a transfer fails."""

_CHUNK = 1 << 20
_SAFE = "%/:=&?~#+!$,;'@()*[]"  # characters of URLs that are not quoted


class Web(Transport):
    """Files of web servers; a name and a password in the URL are sent as basic authentication."""

    schemes = frozenset(('http', 'https'))

    def check(self, source: str, target: str) -> None:
        super().check(source, target)
        url = source if transport(source) else target
        try:
            host = urllib.parse.urlsplit(url).hostname
            _ = urllib.parse.urlsplit(url).port
        except ValueError as error:
            raise DescriptionError(f'{url!r} is not a URL: {error}') from None
        if not host:
            raise DescriptionError(f'{url!r} names no host')

    def get(self, url: str, directory: str) -> None:
        with _explained(url):
            path = os.path.join(directory, _file_name(url))
            with _open(_request(url)) as answer, open(path, 'wb') as file:
                while chunk := answer.read1(_CHUNK):
                    check_interruption(masked(url))
                    file.write(chunk)
                length = answer.headers.get('Content-Length')
                if length is not None and file.tell() != int(length):
                    raise fault(errno.EREMOTEIO, masked(url), f'The file ended after {file.tell()} of {length} bytes')

    def put(self, path: str, url: str, parents: bool) -> None:
        if os.path.isdir(path):
            raise fault(errno.EISDIR, path, 'A directory cannot be sent to a web server')
        with _explained(url), open(path, 'rb', buffering=0) as file:
            request = _request(_named(url, os.path.basename(path)))
            request.method = 'PUT'
            request.data = _Watched(file, masked(url))   # type: ignore[assignment]  # any object with `read` is sent
            request.add_header('Content-Length', str(os.fstat(file.fileno()).st_size))
            request.add_header('Content-Type', 'application/octet-stream')
            _open(request).close()


class _Watched:
    """The content of a file that is sent, unless the transfer is interrupted."""

    def __init__(self, file: io.FileIO, url: str) -> None:
        self._file = file
        self._url = url

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        check_interruption(self._url)
        return self._file.read(max(size, _CHUNK))


def _file_name(url: str) -> str:
    """Return the last part of the path of a URL; as with other programs, that of a site is `index.html`."""
    path = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
    return next((part for part in reversed(path.split('/')) if part not in ('', '.', '..')), 'index.html')


def _named(url: str, name: str) -> str:
    """Return the URL of a target; if its path ends with a slash, that of the file with this name in the directory."""
    parts = urllib.parse.urlsplit(url)
    if parts.path and not parts.path.endswith('/'):
        return url
    return parts._replace(path=f'{parts.path or "/"}{urllib.parse.quote(os.fsencode(name))}').geturl()


def _request(url: str) -> urllib.request.Request:
    """Return the request for a URL; credentials become a header, which is not sent to where the server redirects."""
    parts = urllib.parse.urlsplit(url)
    credentials, found, host = parts.netloc.rpartition('@')
    request = urllib.request.Request(urllib.parse.quote(parts._replace(netloc=host).geturl(), safe=_SAFE))
    if found:
        plain = urllib.parse.unquote(credentials).encode()
        request.add_unredirected_header('Authorization', f'Basic {base64.b64encode(plain).decode()}')
    return request


def _open(request: urllib.request.Request) -> http.client.HTTPResponse:
    """Return the answer; a new opener follows changes of the environment."""
    answer: http.client.HTTPResponse = urllib.request.build_opener().open(request, timeout=TIMEOUT)
    return answer


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Raise all errors of the network as OSErrors with the URL."""
    shown = masked(url)
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise fault(errno.EREMOTEIO, shown, f'HTTP status {error.code} {error.reason}') from error
    except urllib.error.URLError as error:
        raise fault(errno.EREMOTEIO, shown, _reason(error)) from error
    except (TimeoutError, ConnectionError) as error:  # while the body is sent or read
        raise fault(errno.EREMOTEIO, shown, str(error)) from error
    except (http.client.HTTPException, ValueError) as error:
        raise fault(errno.EREMOTEIO, shown, f'{type(error).__name__} {error}') from error


def _reason(error: urllib.error.URLError) -> str:
    reason = error.reason
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason)
