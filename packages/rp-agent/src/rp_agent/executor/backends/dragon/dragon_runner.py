"""Dragon runner: a program that starts processes on the nodes of a Dragon runtime on request.

    dragon dragon_runner.py FILE

It uses only the standard library, pyzmq and Dragon. FILE has the address and the keys of the connection; it is removed.
Requests and news are those of `flux_runner`, except that a run request has `argv`, `environment`, `directory`, `output`
(two paths), and `hosts`: one for each rank, empty for any. RP_RANK is the number of a rank.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from typing import Any

import zmq

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""

ANSWER_TIMEOUT = 60.0
"""Seconds within which the agent must answer."""

_WITH_OUTPUT = 'out=$1 err=$2; shift 2; exec "$@" </dev/null >>"$out" 2>>"$err"'
"""Redirects output to files: Dragon would read a pipe, and block while a surviving process holds the pipe open."""

_LOOK_AFTER = 0.05
"""Seconds after which a wait for ends is repeated, because Dragon's wait does not include processes started later."""


class DragonRunner:
    """Starts and watches processes: one thread starts them, another one waits for their ends."""

    def __init__(self, dragon: Any, access: dict[str, Any]) -> None:
        self._dragon = dragon
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, str(access['number']).encode())
        self._socket.curve_serverkey = access['server'].encode()
        self._socket.curve_publickey = access['public'].encode()
        self._socket.curve_secretkey = access['secret'].encode()
        self._socket.connect(access['address'])
        self._lock = threading.Lock()
        self._comes = threading.Condition(self._lock)
        self._processes: dict[int, tuple[str, Any]] = {}
        self._left: dict[str, int] = {}
        self._statuses: dict[str, int] = {}
        self._to_kill: list[tuple[float, str]] = []
        self._news: list[dict[str, Any]] = []
        # a byte wakes the thread that sends the news
        self._woken, self._waker = os.pipe()

    def connect(self) -> None:
        """Wait for the first answer of the agent; messages that the agent sends before are lost."""
        self._send(hello=True)
        if not self._socket.poll(int(ANSWER_TIMEOUT * 1000)):
            sys.exit(f'the agent does not answer within {ANSWER_TIMEOUT:g} s')
        self._socket.recv()

    def run(self) -> None:
        """Handle requests until the agent ends the runner."""
        threading.Thread(target=self._wait_for_ends, daemon=True).start()
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(self._until_next_kill()))
            if self._woken in ready:
                os.read(self._woken, 4096)
                with self._lock:
                    news, self._news = self._news, []
                for each in news:
                    self._send(**each)
            if self._socket in ready:
                request = json.loads(self._socket.recv())
                if 'end' in request:
                    self._end()
                    return
                if 'run' in request:
                    self._run(request)
                else:
                    self._signal(request['cancel'], signal.SIGTERM)
                    self._to_kill.append((time.monotonic() + GRACE, request['cancel']))
            while self._to_kill and self._to_kill[0][0] <= time.monotonic():
                self._signal(self._to_kill.pop(0)[1], signal.SIGKILL)

    def _until_next_kill(self) -> int | None:
        """Return milliseconds until the next SIGKILL; None if none is pending."""
        if not self._to_kill:
            return None
        return max(0, math.ceil((self._to_kill[0][0] - time.monotonic()) * 1000))

    def _run(self, request: dict[str, Any]) -> None:
        uid = request['run']
        started = []
        try:
            for rank, host in enumerate(request['hosts']):
                policy = self._dragon.Policy(placement=self._dragon.Policy.Placement.HOST_NAME,
                                             host_name=host) if host else None
                nothing = self._dragon.Process.DEVNULL
                process = self._dragon.Process(
                    target='/bin/sh', args=['-c', _WITH_OUTPUT, 'sh', *request['output'], *request['argv']],
                    cwd=request['directory'], env={**request['environment'], 'RP_RANK': str(rank)}, stdin=nothing,
                    stdout=nothing, stderr=nothing, policy=policy)
                process.start()
                started.append(process)
        except Exception as error:
            for process in started:
                process.kill()
            self._send(refused=uid, why=str(error))
            return
        with self._comes:
            self._left[uid] = len(started)
            self._processes.update((process.puid, (uid, process)) for process in started)
            self._comes.notify()
        self._send(started=uid)

    def _wait_for_ends(self) -> None:
        while True:
            with self._comes:
                self._comes.wait_for(lambda: self._processes)
                numbers = list(self._processes)
            ended, _ = self._dragon.multi_join(numbers, timeout=_LOOK_AFTER)
            for number, code in ended or ():
                self._ended(number, code)

    def _ended(self, number: int, code: int) -> None:
        with self._lock:
            uid, _ = self._processes.pop(number)
            status = -code if code < 0 else code << 8
            self._statuses[uid] = max(self._statuses.get(uid, 0), status)
            self._left[uid] -= 1
            if not self._left[uid]:
                del self._left[uid]
                self._news.append({'ended': uid, 'status': self._statuses.pop(uid)})
                os.write(self._waker, b'\0')

    def _signal(self, uid: str, number: int) -> None:
        with self._lock:
            processes = [process for each, process in self._processes.values() if each == uid]
        for process in processes:
            try:
                process.send_signal(number)
            except Exception as error:   # the process has ended
                print(f'cannot signal a process of {uid}: {error}', file=sys.stderr)

    def _end(self) -> None:
        """Kill all processes, and close the connection."""
        with self._lock:
            left = {uid for uid, _ in self._processes.values()}
        for uid in left:
            self._signal(uid, signal.SIGKILL)
        self._socket.close(0)
        self._context.term()

    def _send(self, **news: Any) -> None:
        self._socket.send(json.dumps(news).encode())


def main() -> None:
    """Connect to the agent, and handle its requests."""
    import dragon  # noqa: F401
    from dragon.globalservices import process as services
    from dragon.infrastructure.policy import Policy
    from dragon.native.process import Process

    class Api:
        pass

    api: Any = Api()
    api.Process, api.Policy, api.multi_join = Process, Policy, services.multi_join
    with open(sys.argv[1], encoding='ascii') as file:
        access = json.load(file)
    os.unlink(sys.argv[1])
    runner = DragonRunner(api, access)
    runner.connect()
    runner.run()


if __name__ == '__main__':
    main()
