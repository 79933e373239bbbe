"""The process that talks to batch systems and other hosts (`python -m rp_client.launcher.batch.process`), so that waits
and hangs of theirs, and the threads of radical.saga where that is needed, are not the application's.

Requests come and events go as messages (`frames.py`) over the socket that is its standard input; the end of that socket
is the end of the process, not of the jobs. A request has `op` and the `url` of a batch system:

| op | further keys | events that answer |
|---|---|---|
| open | | none: a connection is made |
| submit | jobs: [{key, sandbox, files: {name: bytes}, copies: {name: path}, request}] | submitted, refused, delayed |
| watch | jobs: [{key, job, sandbox}] | state, ended |
| cancel | keys | ended |
| check | key, script | checked, or trouble |
| ping (no url) | number | pong |

A `request` has the fields of `JobRequest`. Events have `event` and the `key` of a job:

| event | further keys |
|---|---|
| submitted | job: the batch system's id |
| refused | reason |
| delayed | reason: why it could not be submitted yet |
| state | state: QUEUED or RUNNING, words: the batch system's, unschedulable: whether it cannot start as things are |
| ended | state: DONE, FAILED, CANCELED or GONE; words, exit_code, files: {name: last bytes} |
| trouble (no key) | url, reason |
| checked | code, output |
| pong | number |

A request that does not come back within `STUCK` seconds ends the process: its owner starts another one.
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
"""The exit code then."""


class _Process:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._endpoints: dict[str, Endpoint] = {}
        self._sending = threading.Lock()

    def serve(self) -> None:
        """Carry out requests until the other side closes."""
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
    """Serve until the owner closes; the exit code."""
    signals.set_defaults()
    channel = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)   # programs that are started must not read requests
    for part in 'SAGA', 'UTILS':   # else they log to files in the working directory
        os.environ.setdefault(f'RADICAL_{part}_LOG_TGT', 'stderr')
    process = _Process(channel)
    with suppress(ConnectionError):   # the owner died
        process.serve()
    process.close()
    sys.stderr.flush()
    os._exit(0)   # threads of adaptors may never end


if __name__ == '__main__':
    sys.exit(main())
