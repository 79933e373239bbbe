"""Download of files over http and https."""

from __future__ import annotations

import errno
import http.client
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request

from rp_api.staging.files import fault, is_directory_name, prepare, replacing

TIMEOUT = 60.0  # seconds without data from the server
_CHUNK = 1 << 20
_SAFE = "%/:=&?~#+!$,;'@()*[]"  # characters of URLs that are not quoted


def download(url: str, target: str, parents: bool, timeout: float = TIMEOUT) -> str:
    """Download an http or https URL, and return the path of the file.

    A target that is a directory gets the file under the last part of the URL's path; `parents` allows to create missing
    directories. Raise an OSError with the reason: no answer, an HTTP error, or a truncated file.
    """
    if is_directory_name(target) or os.path.isdir(target):
        path = urllib.parse.urlsplit(url).path.rstrip('/')
        target = os.path.join(target, urllib.parse.unquote(os.path.basename(path)))
    prepare(target, parents)
    with replacing(target) as temporary:
        try:
            _fetch(urllib.parse.quote(url, safe=_SAFE), temporary, timeout)
        except urllib.error.HTTPError as error:
            error.close()
            raise fault(errno.EREMOTEIO, url, f'HTTP status {error.code} {error.reason}') from error
        except urllib.error.URLError as error:
            raise fault(errno.EREMOTEIO, url, _reason(error)) from error
        except (TimeoutError, ConnectionError) as error:  # while reading the body
            raise fault(errno.EREMOTEIO, url, str(error)) from error
        except (http.client.HTTPException, ValueError) as error:
            raise fault(errno.EREMOTEIO, url, f'{type(error).__name__} {error}') from error
    return target


def _fetch(url: str, path: str, timeout: float) -> None:
    with urllib.request.urlopen(url, timeout=timeout) as answer, open(path, 'wb') as file:
        shutil.copyfileobj(answer, file, _CHUNK)
        length = answer.headers.get('Content-Length')
        if length is not None and file.tell() != int(length):
            raise fault(errno.EREMOTEIO, url, f'The file ended after {file.tell()} of {length} bytes')


def _reason(error: urllib.error.URLError) -> str:
    reason = error.reason
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason)
