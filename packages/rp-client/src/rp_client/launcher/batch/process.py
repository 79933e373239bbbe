"""The process that communicates with batch systems and hosts (`python -m rp_client.launcher.batch.process`).

It keeps their delays and hangs, and the threads of radical.saga, out of the application. Requests and events are
messages (`frames.py`) on the socket that is its standard input. When the socket is closed, the process ends, but not
the jobs. A request has `op` and the `url` of a batch system:

| op | further keys | events that answer |
|---|---|---|
| open | | none: a connection is made |
| submit | jobs: [{key, sandbox, files: {name: bytes}, copies: {name: path}, request}] | submitted, refused, delayed |
| watch | jobs: [{key, job, sandbox}] | state, ended |
| cancel | keys | ended |
| check | key, script | checked, or trouble |
| ping (no url) | number | pong |

A `request` has the fields of `JobRequest`. A job may have `earlier`, the submissions of applications that were killed
meanwhile. Events have `event` and the `key` of a job:

| event | further keys |
|---|---|
| submitted | job: the batch system's id |
| refused | reason |
| delayed | reason: why it could not be submitted yet |
| state | state: QUEUED or RUNNING, words: the batch system's, unschedulable: whether it cannot start as it is, start |
| ended | state: DONE, FAILED, CANCELED or GONE; words, exit_code, files: {name: last bytes} |
| trouble (no key) | url, reason |
| checked | code, output |
| pong | number |

A request that takes longer than `STUCK` seconds ends the process; its supervisor starts another one.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from rp_api.system import signals
from rp_client.launcher.batch.endpoint import Endpoint
from rp_client.launcher.batch.frames import pack, received

STUCK = 180.0
"""Seconds after which an endpoint that is busy with one request counts as hung."""

HUNG = 3
"""The exit code of a process that has hung."""


class _Process:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._endpoints: dict[str, Endpoint] = {}
        self._sending = threading.Lock()

    def serve(self) -> None:
        """Process requests until the peer closes the socket."""
        for request in received(self._channel):
            self._check()
            if request['op'] == 'ping':
                self._tell({'event': 'pong', 'number': request['number']})
            else:
                self._endpoint(request['url']).request(request)

    def close(self) -> None:
        for endpoint in self._endpoints.values():
            endpoint.close(0.1)

    def _endpoint(self, url: str) -> Endpoint:
        if url not in self._endpoints:
            self._endpoints[url] = Endpoint(url, self._tell)
        return self._endpoints[url]

    def _check(self) -> None:
        now = time.monotonic()
        for endpoint in self._endpoints.values():
            if (since := endpoint.busy_since) is not None and now - since > STUCK:
                print(f'{endpoint.url} hangs', file=sys.stderr, flush=True)
                os._exit(HUNG)

    def _tell(self, event: dict[str, Any]) -> None:
        with self._sending:
            self._channel.sendall(pack(event))


def main() -> int:
    """Serve until the supervisor closes the socket."""
    signals.set_defaults()
    channel = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)   # started programs must not read requests
    for part in 'SAGA', 'UTILS':   # their default log is a file in the working directory
        os.environ.setdefault(f'RADICAL_{part}_LOG_TGT', 'stderr')
    process = _Process(channel)
    with suppress(ConnectionError):   # the supervisor died
        process.serve()
    process.close()
    sys.stderr.flush()
    os._exit(0)   # threads of adaptors may never end


if __name__ == '__main__':
    sys.exit(main())
