"""A stand-in for the services of Globus: answers in the form of their recorded documents, and copies local files.

The forms are those of https://docs.globus.org/api/transfer/, as in the fixtures of `globus_sdk.testing`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

HERE, THERE, CLOSED = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
"""Collections: this host, another host, and one that lets nobody in."""

TOKEN = 'DUMMY_TRANSFER_TOKEN_FROM_THE_INTERTUBES'


class Service(NamedTuple):
    """A running service."""

    url: str
    roots: dict[str, Path]
    """The directories of the collections."""
    tasks: dict[str, dict[str, Any]]
    """The transfers: the document that was submitted (`wanted`), and the task document (`task`)."""
    requests: list[tuple[str, str, str]]
    """Method, path and authorization of all requests."""
    outcomes: dict[str, dict[str, Any]]
    """The final fields of the tasks that transfer a file of that name; {} for one that never ends."""

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which the SDK reaches this service."""
        return {'GLOBUS_SDK_SERVICE_URL_TRANSFER': self.url, 'GLOBUS_SDK_SERVICE_URL_AUTH': self.url,
                'GLOBUS_ACCESS_TOKEN': TOKEN, 'RADICAL_PILOT_GLOBUS_ENDPOINT': HERE}

    def path(self, collection: str, path: str) -> Path:
        return self.roots[collection] / path.lstrip('/')


class Refusal(Exception):
    """An answer that is an error: status, code and message."""


class Handler(BaseHTTPRequestHandler):
    """Answers requests."""

    service: Service

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def _answer(self) -> None:
        place = urlsplit(self.path)
        self.service.requests.append((self.command, place.path, self.headers.get('Authorization', '')))
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        try:
            status, document = 200, self._document(place.path, parse_qs(place.query), body)
        except Refusal as refusal:
            status, code, message = refusal.args
            document = {'code': code, 'message': message, 'request_id': 'aaabbbccc', 'resource': place.path}
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _document(self, path: str, query: Mapping[str, list[str]], body: bytes) -> Any:
        words = path.strip('/').split('/')
        if words == ['v2', 'oauth2', 'token']:
            return {'access_token': TOKEN, 'scope': 'urn:globus:auth:scope:transfer.api.globus.org:all',
                    'expires_in': 172800, 'token_type': 'Bearer', 'resource_server': 'transfer.api.globus.org',
                    'other_tokens': []}
        if self.headers.get('Authorization') != f'Bearer {TOKEN}':
            raise Refusal(401, 'AuthenticationFailed', 'Token is not active')
        if words[-1] == 'submission_id':
            return {'value': str(uuid.uuid4())}
        if words[-1] == 'stat':
            return self._stat(words[-2], query['path'][0])
        if words[-1] == 'transfer':
            return self._submit(json.loads(body))
        if words[-1] == 'cancel':
            self.service.tasks[words[-2]]['task'] |= {'status': 'FAILED', 'fatal_error': {
                'code': 'CANCELED', 'description': 'canceled'}}
            return {'DATA_TYPE': 'result', 'code': 'Canceled', 'message': 'The task has been cancelled successfully.',
                    'resource': path, 'request_id': 'ABCdef789'}
        if words[-1] == 'event_list':
            return {'DATA_TYPE': 'event_list', 'total': 1, 'limit': 10, 'offset': 0, 'DATA': [{
                'DATA_TYPE': 'event', 'code': 'CONNECT_FAILED', 'is_error': True, 'description': 'connect failed',
                'details': 'No route to host', 'time': '2023-12-18T16:52:50+00:00'}]}
        return self._task(self.service.tasks[words[-1]])

    def _stat(self, collection: str, path: str) -> Any:
        if collection == CLOSED:
            raise Refusal(403, 'EndpointPermissionDenied', 'Denied by endpoint, Error (list)')
        found = self.service.path(collection, path)
        if not found.exists():
            raise Refusal(404, 'NotFound', 'Path not found, Error (list)')
        return {'DATA_TYPE': 'file', 'name': found.name, 'type': 'dir' if found.is_dir() else 'file',
                'size': found.stat().st_size, 'last_modified': '2023-12-18 16:52:50+00:00', 'permissions': '0644'}

    def _submit(self, wanted: dict[str, Any]) -> Any:
        if not wanted['DATA']:
            raise Refusal(400, 'ClientError.BadRequest.NoTransferItems', 'A transfer requires at least one item')
        uid = str(uuid.uuid4())
        self.service.tasks[uid] = {'wanted': wanted, 'task': {
            'DATA_TYPE': 'task', 'task_id': uid, 'type': 'TRANSFER', 'status': 'ACTIVE', 'bytes_transferred': 0,
            'faults': 0, 'files': 1, 'files_transferred': 0, 'fatal_error': None, 'is_ok': True, 'nice_status': 'OK',
            'nice_status_details': None, 'source_endpoint_id': wanted['source_endpoint'],
            'destination_endpoint_id': wanted['destination_endpoint'], 'label': wanted['label']}, 'seen': 0}
        return {'DATA_TYPE': 'transfer_result', 'code': 'Accepted', 'task_id': uid, 'request_id': '7HgMVYazI',
                'message': 'The transfer has been accepted and a task has been created and queued for execution',
                'resource': '/v0.10/transfer', 'submission_id': wanted['submission_id']}

    def _task(self, known: dict[str, Any]) -> Any:
        """A task is active when it is first looked at, and then has its outcome."""
        known['seen'] += 1
        task, (item,) = known['task'], known['wanted']['DATA']
        if known['seen'] > 1 and task['status'] == 'ACTIVE':
            name = item['source_path'].rpartition('/')[2]
            if name in self.service.outcomes:
                task |= self.service.outcomes[name]
            else:
                self._copy(known['wanted'], item)
                task |= {'status': 'SUCCEEDED', 'files_transferred': 1, 'completion_time': '2021-09-02T18:04:49+00:00'}
        return task

    def _copy(self, wanted: dict[str, Any], item: dict[str, Any]) -> None:
        source = self.service.path(wanted['source_endpoint'], item['source_path'])
        target = self.service.path(wanted['destination_endpoint'], item['destination_path'])
        target.parent.mkdir(parents=True, exist_ok=True)
        if item.get('recursive'):
            assert wanted['recursive_symlinks'] == 'keep'
            subprocess.run(['cp', '-aT', source, target], check=True)
        else:
            shutil.copy(source, target)


@contextmanager
def globus_service(there: Path) -> Iterator[Service]:
    """A service whose other collection is a directory."""
    class Own(Handler):
        pass

    with ThreadingHTTPServer(('127.0.0.1', 0), Own) as server:
        service = Service(f'http://127.0.0.1:{server.server_port}', {HERE: Path('/'), THERE: there}, {}, [], {})
        Own.service = service
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
