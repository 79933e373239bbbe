"""Staging with Globus: `globus://COLLECTION/path`, where COLLECTION is the UUID of a collection (or endpoint).

The service copies between two collections. A local path belongs to the collection of this host, whose UUID is in
`RADICAL_PILOT_GLOBUS_ENDPOINT`, by default the Globus Connect Personal of the user. Credentials are in environment
variables: `GLOBUS_CLIENT_ID` with `GLOBUS_CLIENT_SECRET` or `GLOBUS_REFRESH_TOKEN`, or `GLOBUS_ACCESS_TOKEN`.

Formats: https://docs.globus.org/api/transfer/task/. The package `globus-sdk` is needed only here.
"""

from __future__ import annotations

import errno
import importlib.util
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from rp_api.backoff import backoff
from rp_api.errors import DescriptionError
from rp_api.staging.files import fault, is_directory_name
from rp_api.staging.interruption import check_interruption, transferring
from rp_api.staging.protocol import Transport, transport

if TYPE_CHECKING:
    from globus_sdk import GlobusHTTPResponse, TransferClient
    from globus_sdk.authorizers import GlobusAuthorizer

ENDPOINT = 'RADICAL_PILOT_GLOBUS_ENDPOINT'
"""The environment variable with the UUID of the collection that this host's files belong to."""

POLL_S = 1.0, 30.0
"""The first and the longest interval between two looks at a transfer."""

FAULT_TIMEOUT = 300.0
"""Seconds without progress after which a transfer with faults is given up; Globus itself retries for days."""

_SLICE = 0.25
"""Seconds between checks for interruptions."""

_NO_FILE = ('NotFound', 'ClientError.NotFound')
"""Codes of errors that mean that a path does not exist."""

_INSTALL = 'globus-sdk is needed for globus:// and is not installed on this host: pip install "rp-client[globus]"'
_CREDENTIALS = ('globus:// needs credentials in the environment: GLOBUS_CLIENT_ID with GLOBUS_CLIENT_SECRET or '
                'GLOBUS_REFRESH_TOKEN, or GLOBUS_ACCESS_TOKEN')


class GlobusPlace(NamedTuple):
    """A file or directory of a collection."""

    collection: str
    path: str

    @classmethod
    def of(cls, url: str) -> GlobusPlace:
        """Return the place of a URL, in which percent signs stand for themselves; raise a `DescriptionError`."""
        collection, slash, path = url.partition('://')[2].partition('/')
        try:
            if not slash:
                raise ValueError
            return cls(str(UUID(collection)), f'/{path}')
        except ValueError:
            raise DescriptionError(f'{url!r} is not globus://UUID/PATH, with the UUID of a collection') from None

    def below(self, name: str) -> GlobusPlace:
        """Return the place of that name in this directory."""
        return self._replace(path=os.path.join(self.path, name))


class Globus(Transport):
    """Files of Globus collections; `go://` is the scheme of RADICAL-Pilot 1."""

    schemes = frozenset(('globus', 'go'))

    def missing(self) -> str:
        if importlib.util.find_spec('globus_sdk') is None:
            return _INSTALL
        return '' if _has_credentials() else _CREDENTIALS

    def check(self, source: str, target: str) -> None:
        """Refuse URLs of other forms; both ends may be collections."""
        for url in (source, target):
            found = transport(url)
            if found is self:
                GlobusPlace.of(url)
            elif found:
                super().check(source, target)
        if transport(source) and not self.name(source):
            raise DescriptionError(f'{source!r} names no file or directory')

    def name(self, source: str) -> str:
        return os.path.basename(source.partition('://')[2].partition('/')[2].rstrip('/'))

    def stage(self, source: str, target: str, parents: bool) -> str:
        """Copy between two collections; see `Transport.stage` for local paths."""
        if not (transport(source) and transport(target)):
            return super().stage(source, target, parents)
        missing = self.missing()
        if missing:
            raise fault(errno.ENOSYS, source, missing)
        with _service(source) as client:
            _copy(client, GlobusPlace.of(source), _target(client, target, self.name(source), parents), source)
        return target

    def get(self, url: str, directory: str) -> None:
        with _service(url) as client:
            _copy(client, GlobusPlace.of(url), GlobusPlace(_own_collection(url), directory).below(self.name(url)), url)

    def put(self, path: str, url: str, parents: bool) -> None:
        with _service(url) as client:
            target = _target(client, url, os.path.basename(path), parents, merge=os.path.isdir(path))
            _copy(client, GlobusPlace(_own_collection(url), path), target, url, is_directory=os.path.isdir(path))


def _has_credentials() -> bool:
    known = os.environ
    return bool(known.get('GLOBUS_ACCESS_TOKEN') or (known.get('GLOBUS_CLIENT_ID') and (
        known.get('GLOBUS_CLIENT_SECRET') or known.get('GLOBUS_REFRESH_TOKEN'))))


def _own_collection(url: str) -> str:
    """Return the UUID of the collection with the files of this host; raise an OSError if there is none."""
    from globus_sdk import LocalGlobusConnectPersonal

    found = os.environ.get(ENDPOINT) or LocalGlobusConnectPersonal().endpoint_id
    if not found:
        raise fault(errno.ENOENT, url, f'This host has no Globus collection: set {ENDPOINT} to the UUID of that which '
                    'has its files, or start Globus Connect Personal')
    return found


@contextmanager
def _service(url: str) -> Iterator[TransferClient]:
    """Provide the client of the service; its errors become OSErrors with the URL."""
    from globus_sdk import GlobusAPIError, GlobusError, TransferClient

    try:
        with transferring(), _authorized() as authorizer, TransferClient(authorizer=authorizer) as client:
            yield client
    except GlobusAPIError as error:
        raise fault(errno.EREMOTEIO, url, f'Globus: {error.message or error.text} ({error.code or error.http_status})'
                    ) from error
    except GlobusError as error:
        raise fault(errno.EREMOTEIO, url, f'Globus: {error}') from error


@contextmanager
def _authorized() -> Iterator[GlobusAuthorizer]:
    """Provide the credentials of the environment."""
    from globus_sdk import (
        AccessTokenAuthorizer,
        ClientCredentialsAuthorizer,
        ConfidentialAppAuthClient,
        NativeAppAuthClient,
        RefreshTokenAuthorizer,
    )
    from globus_sdk.scopes import TransferScopes

    known = os.environ
    identity, secret = known.get('GLOBUS_CLIENT_ID', ''), known.get('GLOBUS_CLIENT_SECRET', '')
    refresh_token = known.get('GLOBUS_REFRESH_TOKEN', '')
    if identity and secret:
        with ConfidentialAppAuthClient(identity, secret) as application:
            yield (RefreshTokenAuthorizer(refresh_token, application) if refresh_token else
                   ClientCredentialsAuthorizer(application, TransferScopes.all))
    elif identity and refresh_token:
        with NativeAppAuthClient(identity) as native:
            yield RefreshTokenAuthorizer(refresh_token, native)
    else:
        yield AccessTokenAuthorizer(known['GLOBUS_ACCESS_TOKEN'])


def _kind(client: TransferClient, place: GlobusPlace) -> str:
    """Return `file`, `dir` or another type of a file; empty if it does not exist."""
    from globus_sdk import TransferAPIError

    try:
        return str(client.operation_stat(place.collection, place.path)['type'])
    except TransferAPIError as error:
        if error.http_status == 404 and error.code in _NO_FILE:   # other codes: there is no such collection
            return ''
        raise


def _target(client: TransferClient, url: str, name: str, parents: bool, *, merge: bool = False) -> GlobusPlace:
    """Return the resulting place: the target, or the source's name below it. Globus makes missing parents."""
    place = GlobusPlace.of(url)
    if is_directory_name(place.path) or (not merge and _kind(client, place) == 'dir'):
        place = place.below(name)
    parent = place._replace(path=os.path.dirname(place.path))
    if not parents and _kind(client, parent) != 'dir':
        raise fault(errno.ENOENT, url, f'No directory {parent.path}, and the flag CREATE_PARENTS is not set')
    return place


def _copy(client: TransferClient, source: GlobusPlace, target: GlobusPlace, url: str,
          is_directory: bool | None = None) -> None:
    """Copy a file or a directory, and return when it is there; the URL is that of error messages."""
    from globus_sdk import TransferData

    if is_directory is None:
        kind = _kind(client, source)
        if not kind:
            raise fault(errno.ENOENT, url)
        is_directory = kind == 'dir'
    check_interruption(url)
    links = {'recursive_symlinks': 'keep'} if is_directory else {}   # Globus skips them otherwise
    wanted = TransferData(source_endpoint=source.collection, destination_endpoint=target.collection,
                          label='RADICAL-Pilot', fail_on_quota_errors=True, notify_on_succeeded=False,
                          notify_on_failed=False, notify_on_inactive=False, additional_fields=links)
    wanted.add_item(source.path.rstrip('/') or '/', target.path.rstrip('/'), recursive=is_directory)
    task = str(client.submit_transfer(wanted)['task_id'])
    try:
        _wait(client, task, url)
    except BaseException:
        with suppress(Exception):   # it may have ended; the first error counts
            client.cancel_task(task)
        raise


def _wait(client: TransferClient, task: str, url: str) -> None:
    """Wait for the end of a transfer; raise an OSError with Globus' explanation if it fails."""
    moved, since = -1, time.monotonic()
    for looks in itertools.count(1):
        found = client.get_task(task)
        status = found['status']
        if status == 'SUCCEEDED':
            return
        if status != 'ACTIVE':
            raise fault(errno.EREMOTEIO, url, f'Globus transfer {task} is {status}: {_reason(client, found)}')
        if found['bytes_transferred'] != moved or not found.get('faults'):
            moved, since = found['bytes_transferred'], time.monotonic()
        elif time.monotonic() - since > FAULT_TIMEOUT:
            raise fault(errno.EREMOTEIO, url, f'Globus transfer {task} makes no progress: {_reason(client, found)}')
        _sleep(backoff(looks, *POLL_S, factor=1.5), url)


def _reason(client: TransferClient, found: GlobusHTTPResponse) -> str:
    """Return why a transfer does not succeed: its fatal error, its condition, or the last error among its events."""
    from globus_sdk import GlobusError

    fatal = found.get('fatal_error') or {}
    if fatal.get('description'):
        return f'{fatal["description"]} ({fatal.get("code")})'
    if found.get('nice_status_details'):
        return f'{found["nice_status_details"]} ({found.get("nice_status")})'
    with suppress(GlobusError):
        for event in client.task_event_list(found['task_id'], query_params={'filter': 'is_error:1'}):
            return f'{event["description"]}: {event["details"]}'
    return str(found.get('nice_status') or 'Globus gives no reason')


def _sleep(seconds: float, url: str) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        check_interruption(url)
        time.sleep(min(left, _SLICE))
