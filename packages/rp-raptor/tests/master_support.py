"""What surrounds a master in tests: an agent and workers that do what the test says, in threads of this process."""

from __future__ import annotations

import os
import signal
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import zmq

from rp_api.functions import deserialize_obj
from rp_api.loop.event_loop import Loop
from rp_api.raptor_link import from_master, link_file, master_file
from rp_api.system.host import host_id
from rp_api.transport import keys
from rp_api.transport.access import Access
from rp_api.transport.connection import Listener, PeerConnection, arrivals
from rp_api.wire import codec
from rp_raptor.master.master import Master
from rp_raptor.rank.running import arguments
from rp_raptor.wire import payload
from rp_raptor.wire.batch import Payloads, pack_message
from rp_raptor.wire.protocol import PROTOCOL, WORKER, parse_from_master

TIMEOUT = 30.0
UID = 'raptor.0000'

AnyMaster = TypeVar('AnyMaster', bound=Master)


class Party:
    """A loop in a thread; what has come in can be waited for."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.context: zmq.Context[Any] = zmq.Context()
        self.news: list[list[Any]] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self.loop.run)

    def do(self, action: Callable[[], object]) -> None:
        """Run something in the loop's thread, and wait for its end."""
        done = threading.Event()

        def run() -> None:
            action()
            done.set()

        self.loop.call_soon(run)
        assert done.wait(TIMEOUT)

    def note(self, message: list[Any]) -> None:
        """Remember a message, and look whether somebody waits for it."""
        with self._changed:
            self.news.append(message)
            self._changed.notify_all()

    def wait(self, condition: Callable[[], Any]) -> Any:
        """What the condition gives once that is true of what has come in."""
        with self._changed:
            assert self._changed.wait_for(condition, TIMEOUT), self.news
            return condition()

    def heard(self, operation: str, number: int = 1) -> list[Any]:
        """The arguments of that message, once so many of them have come."""
        def found() -> list[Any] | None:
            matches = [message for message in self.news if message[0] == operation]
            return matches[number - 1] if len(matches) >= number else None
        return list(self.wait(found)[1:])

    def end(self, close: Callable[[], object]) -> None:
        """Close what there is, and end the thread."""
        self.do(close)
        self.loop.stop()
        self._thread.join(TIMEOUT)
        self.loop.close()
        self.context.term()


class ScriptedAgent(Party):
    """An agent that does nothing by itself."""

    def __init__(self, sandbox: Path) -> None:
        super().__init__()
        self.peer = b''
        own, theirs = keys.generate(), keys.generate()
        self._gate = keys.Gate(self.context, self.loop)
        self._gate.allow(theirs.public, 'agent')
        self._listener = Listener(self.loop, zmq.ROUTER, own, self._gate, None, 'agent', 0, self._receive)
        self.path = link_file(str(sandbox))
        Access(self._listener.address, own.public.decode(), theirs.public.decode(),
               theirs.secret.decode()).save(self.path)
        self._thread.start()

    def tell(self, *message: Any) -> None:
        """Send the master a message."""
        self.do(lambda: self._listener.socket.send_multipart([self.peer, codec.pack(message)]))

    def give(self, tasks: list[dict[str, Any]]) -> None:
        """Send the master tasks: each {'uid', 'description', 'sandbox'}."""
        common, rests = codec.pack_bulk([task['description'] for task in tasks])
        self.tell('tasks', common, [task['uid'] for task in tasks], [task['sandbox'] for task in tasks], rests)

    def results(self) -> dict[str, dict[str, Any]]:
        """The results that have come, by uid; each task has one."""
        rows = [row for message in self.news if message[0] == 'results' for row in zip(*message[1:], strict=True)]
        assert len({uid for uid, _ in rows}) == len(rows)
        return {uid: {**codec.unpack(result), 'target_state': 'DONE'} if isinstance(result, bytes) else result
                for uid, result in rows}

    def result(self, uid: str) -> dict[str, Any]:
        """The result of a task, once it is there."""
        self.wait(lambda: uid in self.results())
        return self.results()[uid]

    def submitted(self) -> dict[str, dict[str, Any]]:
        """What the master has submitted, by uid."""
        return {each['uid']: each for message in self.news if message[0] == 'submit' for each in message[1]}

    def close(self) -> None:
        """Be gone."""
        self.end(self._close_sockets)
        os.unlink(self.path)

    def _close_sockets(self) -> None:
        self._listener.close(0)
        self._gate.close()

    def _receive(self) -> None:
        for frames in arrivals(self._listener.socket):
            self.peer = frames[0]
            operation, arguments = from_master(frames[-1])
            self.note([operation, *arguments])


class ScriptedWorker(Party):
    """A worker's manager whose calls are run in this process, by `step()` or (`eager`) as they come."""

    def __init__(self, sandbox: Path, uid: str = 'worker', *, ranks: int = 1, mpi: bool = False, credit: int = 8,
                 eager: bool = True, hello: bool = True, pid: int = 0) -> None:
        super().__init__()
        self.calls: dict[int, bytes] = {}
        self.uid = uid
        self._functions: dict[bytes, Any] = {}
        self._eager = eager
        self._hello = ['worker', uid, host_id(), pid or os.getpid(), ranks, {'mpi': mpi, 'protocol': PROTOCOL}]
        self._ranks = ranks
        self._credit = credit
        access = Access.load(master_file(str(sandbox), UID))
        self._connection = PeerConnection(self.loop, zmq.DEALER, access.address, access.keys, access.server_key,
                                      self.context, self._receive, self._connected if hello else _nothing, print)
        self._connection.open()
        self._thread.start()

    def tell(self, *message: Any) -> None:
        """Send the master a message."""
        self.do(lambda: self._send(*message))

    def has(self, number: int) -> list[int]:
        """The ids of the calls that it has, once there are so many."""
        self.wait(lambda: len(self.calls) >= number)
        return list(self.calls)

    def step(self, *ids: int) -> None:
        """Run calls that it has (all of them, if none are named), and send their results."""
        self.do(lambda: self._run(list(ids or self.calls)))

    def give_back(self, ids: list[int]) -> None:
        """Give calls back."""
        def give() -> None:
            for number in ids:
                del self.calls[number]
            self._send('returned', array('Q', ids))
        self.do(give)

    def die(self, ids: list[int], reason: str = 'it has died') -> None:
        """Say that the rank with these calls is dead."""
        def tell() -> None:
            for number in ids:
                del self.calls[number]
            self._send('died', array('Q', ids), reason)
        self.do(tell)

    def close(self, *goodbye: str) -> None:
        """Be gone, with or without a goodbye."""
        def close() -> None:
            if goodbye:
                self._send('bye', *goodbye)
            self._connection.close(1)
        self.end(close)

    def _send(self, *message: Any) -> None:
        self._connection.socket.send(pack_message(list(message)))

    def _connected(self) -> None:
        self._send(*self._hello)
        self._send('rank_states', dict.fromkeys(range(self._ranks), 'ACTIVE'))
        if self._credit:
            self._send('credit', self._credit)

    def _receive(self) -> None:
        for frames in arrivals(self._connection.socket):
            operation, arguments = parse_from_master(b''.join(frames), WORKER)
            if operation == 'define':
                self._functions[arguments[0]] = arguments[1]
            elif operation == 'forget':
                del self._functions[arguments[0]]
            elif operation == 'calls':
                self.calls.update(zip(arguments[0], arguments[1], strict=True))
                if self._eager:
                    self._run(list(arguments[0]))
            self.note([operation, *arguments])

    def _run(self, ids: list[int]) -> None:
        results = [self._result(self.calls.pop(number)) for number in ids]
        self._send('results', array('Q', ids), Payloads(results))
        self._send('credit', len(ids))

    def _result(self, call: bytes) -> bytes:
        kind = payload.kind_of(call)
        if kind in b'DT':
            return payload.encode_result({'exit_code': 0, 'return_value': self.described(call)['uid'], 'stdout': 'out'})
        function = deserialize_obj(payload.opened_definition(self._functions[payload.fid_of(call)])[0])
        if kind == b'F':
            return self._outcome(function, *arguments(call))
        return payload.encode_outcomes([self._outcome(function, *each) for each in payload.decode_chunk(call)])

    def described(self, call: bytes) -> dict[str, Any]:
        """The task in a call: uid, description and sandbox."""
        if payload.kind_of(call) == b'D':
            return payload.decode_described(call)
        uid, sandbox, rest = payload.decode_alike(call)
        description, = codec.unpack_bulk(self._functions[payload.fid_of(call)], [rest])
        return {'uid': uid, 'description': description, 'sandbox': sandbox}

    def _outcome(self, function: Any, args: Any, kwargs: Any) -> bytes:
        try:
            return payload.encode_value(function(*args, **kwargs or {}))
        except Exception as error:
            return payload.encode_error(error)


@contextmanager
def running(master_class: type[AnyMaster], sandbox: Path, monkeypatch: pytest.MonkeyPatch, *,
            start: bool = True) -> Iterator[tuple[AnyMaster, ScriptedAgent]]:
    """A master that has said hello to its agent; both are gone afterwards."""
    agent = ScriptedAgent(sandbox)
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv('RP_TASK_ID', UID)
    monkeypatch.setenv('RP_TASK_SANDBOX', str(sandbox))
    monkeypatch.setenv('RP_PILOT_SANDBOX', str(sandbox))
    try:
        master = master_class()
        try:
            agent.heard('hello')
            if start:
                master.start()
            yield master, agent
        finally:
            master.stop()
            master.join()
    finally:
        signal.signal(signal.SIGTERM, handler)
        agent.close()


def _nothing() -> None:
    """A handshake that nobody cares for."""
