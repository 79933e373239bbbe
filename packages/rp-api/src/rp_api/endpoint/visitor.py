"""The endpoint of a pilot: processes on its nodes call the agent there, and answer calls to the pilot.

The agent listens (ROUTER), visitors connect (DEALER). A message is a msgpack list `[operation, arguments...]`. Address
and keys are in `endpoint_file()` in the pilot's sandbox, an `Access` that only the owner can read.

From a visitor:

    hello uid                       the first message, also after a reconnection: the uid of its task, may be empty
    call number name args kwargs address
                                    calls a procedure of the agent or, with an address, of the task of that uid
    cancel number                   the visitor does not wait for the result of its call any more
    register number name            from now on, the visitor answers calls of that name
    result number ok value          the answer to a call of the agent: a value, or an error text if `ok` is false

From the agent:

    result number ok value          the answer to a call, or to a registration
    call number name args kwargs    a call that the visitor has to answer
    ping                            ignored; it fails if the visitor is gone
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout  # its own before Python 3.11
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any

import zmq

from rp_api import units
from rp_api.errors import CoordinationError, sentence
from rp_api.loop.event_loop import Loop
from rp_api.system.owner_process import OwnerProcess
from rp_api.transport.access import Access
from rp_api.transport.connection import PeerConnection, arrivals
from rp_api.transport.keys import Tally
from rp_api.wire import codec, form

CONNECT_TIMEOUT = 60.0
"""Seconds without a connection after which the agent counts as lost."""

LINGER = 2.0
"""Seconds at the end in which the last messages are sent."""

_CALL = form.is_number, form.is_text, form.is_list, form.is_dict
_RESULT = form.is_number, form.is_flag, form.is_anything

_FROM_VISITOR: form.Table = {
    'hello': (form.is_text,), 'call': (*_CALL, form.is_text), 'cancel': (form.is_number,),
    'register': (form.is_number, form.is_text), 'result': _RESULT}

_FROM_AGENT: form.Table = {'result': _RESULT, 'call': _CALL, 'ping': ()}


def endpoint_file(pilot_sandbox: str, partition: str = '') -> str:
    """Return the path of the file with address and keys; `partition` is `$RP_PARTITION_ID`."""
    return os.path.join(pilot_sandbox, f'endpoint.{partition}.json' if partition else 'endpoint.json')


def from_visitor(data: bytes) -> tuple[str, list[Any]]:
    """Return operation and arguments of a visitor's message; raise CoordinationError if it is malformed."""
    return form.parse(data, _FROM_VISITOR, 'a visitor')


class PilotEndpoint:
    """A connection to the agent of a pilot, for processes on the pilot's nodes.

    Methods may be called from any thread, but not in a fork of the process. Use it as a context manager, or call
    `close`.

    Args:
        pilot_sandbox: The pilot's sandbox; default: that of the task that runs this process.

    Raises:
        RuntimeError: The process is no task of a pilot, or the pilot has no endpoint.
        CoordinationError: The file with the keys is not private, or malformed.
    """

    def __init__(self, pilot_sandbox: str | None = None) -> None:
        sandbox = pilot_sandbox or os.environ.get('RP_PILOT_SANDBOX')
        if not sandbox:
            raise RuntimeError('RP_PILOT_SANDBOX is not set: this process is no task of a pilot, name the sandbox')
        path = endpoint_file(sandbox, os.environ.get('RP_PARTITION_ID', ''))
        if not os.path.exists(path):
            raise RuntimeError(f'there is no endpoint at {path}: the pilot has ended, or was submitted without '
                               'PilotDescription.enable_ep')
        access = Access.load(path)
        self._address = access.address
        self._process = OwnerProcess('a PilotEndpoint')
        self._procedures: dict[str, Callable[..., Any]] = {}
        self._waiting: dict[int, Future[Any]] = {}
        self._numbers = count()
        self._lost = ''   # why no call is possible any more
        self._malformed = Tally('malformed message of the agent dropped')
        self._loop = Loop()
        self._context: zmq.Context[Any] = zmq.Context()
        self._handlers: Mapping[str, Callable[..., object]] = {
            'result': self._on_result, 'call': self._on_call, 'ping': lambda: None}
        self._timer = self._loop.call_later(CONNECT_TIMEOUT, self._give_up)
        self._connection = PeerConnection(self._loop, zmq.DEALER, access.address, access.keys, access.server_key,
                                      self._context, self._receive, self._connected, self._end, self._disconnected)
        self._connection.socket.routing_id = os.urandom(12)   # the same after a reconnection
        self._connection.socket.sndhwm = 0
        self._connection.open()
        self._say('hello', os.environ.get('RP_TASK_ID', ''))
        self._met = False
        self._thread = threading.Thread(target=self._run, name='rp.endpoint', daemon=True)
        self._thread.start()

    def __enter__(self) -> PilotEndpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def call(self, cmd: str, *args: Any, rpc_addr: str | None = None, rpc_timeout: units.Time | None = None,
             **kwargs: Any) -> Any:
        """Call a procedure of the agent or of a task, and wait for its result.

        Args:
            cmd: Name of the procedure, such as `submit_tasks`.
            *args: Positional arguments, plain data.
            rpc_addr: Uid of the task whose procedure is called; default: any.
            rpc_timeout: Seconds to wait at most; default: no limit.
            **kwargs: Keyword arguments, plain data.

        Returns:
            The result, plain data.

        Raises:
            TypeError, ValueError: An argument is not plain data, or too large.
            RuntimeError: The call failed, or the agent has ended.
            TimeoutError: There is no result in time; the call is cancelled.
        """
        codec.pack([args, kwargs])   # raises an error here, not in the loop
        return self._ask(f'{cmd} of the pilot', rpc_timeout, 'call', cmd, list(args), kwargs, rpc_addr or '')

    def register_rpc_cb(self, cmd: str, cb: Callable[..., Any]) -> None:
        """Answer the calls of that name to the pilot, from `Pilot.rpc` and from other tasks.

        The procedure is called as `cb(*args, **kwargs)` in a thread for each call, and returns plain data. What it
        raises, the caller gets as RuntimeError. If several tasks register a name, callers choose one by its uid.

        Args:
            cmd: The name of the procedure.
            cb: The procedure.

        Raises:
            TypeError: `cb` is not callable.
            RuntimeError: The agent itself has a procedure of that name, or has ended.
        """
        if not callable(cb):
            raise TypeError(f'the procedure {cmd} must be a callable, it is {cb!r}')
        self._procedures[cmd] = cb
        self._ask(f'registration of {cmd}', CONNECT_TIMEOUT, 'register', cmd)

    def close(self) -> None:
        """Close the connection; procedures of this process are not called any more. May be called again."""
        if self._process.here and self._thread.is_alive():
            self._loop.call_soon(self._end, 'the connection was closed')
            self._loop.call_soon(self._loop.stop)
            self._thread.join()

    # in the thread of the caller

    def _ask(self, text: str, timeout: units.Time | None, operation: str, *arguments: Any) -> Any:
        self._process.check()   # a fork has no thread for the loop
        timeout = units.limit(timeout, 'rpc_timeout')
        number, outcome = next(self._numbers), Future[Any]()
        self._waiting[number] = outcome
        self._loop.call_soon(self._say, operation, number, *arguments)
        if self._lost:
            self._fail(self._lost)
        try:
            return outcome.result(timeout)
        except FutureTimeout:
            if outcome.done():
                raise
            raise TimeoutError(f'{text} was not answered within {timeout} s') from None
        except RuntimeError as error:
            raise RuntimeError(f'{text} failed: {error}') from None
        finally:
            if self._waiting.pop(number, None) is not None:
                self._loop.call_soon(self._say, 'cancel', number)

    # in the thread of the loop

    def _run(self) -> None:
        try:
            self._loop.run()
        finally:
            self._end('the connection has failed')
            self._connection.close(LINGER)
            self._loop.close()
            self._context.term()

    def _say(self, *message: Any) -> None:
        if not self._connection.socket.closed:
            self._connection.socket.send(codec.pack(message), zmq.NOBLOCK)

    def _receive(self) -> None:
        for frames in arrivals(self._connection.socket):
            try:
                operation, arguments = form.parse(b''.join(frames), _FROM_AGENT, 'the agent')
            except CoordinationError as error:
                self._malformed.add(error)
            else:
                self._handlers[operation](*arguments)

    def _connected(self) -> None:
        self._timer.cancel()
        if self._met:   # the agent may have forgotten this process
            self._say('hello', os.environ.get('RP_TASK_ID', ''))
            for name in self._procedures:
                self._say('register', next(self._numbers), name)
        self._met = True

    def _disconnected(self) -> None:
        self._fail('the connection to the agent was lost')
        self._timer.cancel()
        self._timer = self._loop.call_later(CONNECT_TIMEOUT, self._give_up)

    def _give_up(self) -> None:
        self._end(f'there is no connection to {self._address} for {CONNECT_TIMEOUT:.0f} s')

    def _end(self, reason: str) -> None:
        self._lost = self._lost or reason
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        for number in list(self._waiting):
            self._on_result(number, False, reason)

    def _on_result(self, number: int, good: bool, value: Any) -> None:
        outcome = self._waiting.pop(number, None)
        with suppress(InvalidStateError):
            if outcome is not None and good:
                outcome.set_result(value)
            elif outcome is not None:
                outcome.set_exception(RuntimeError(str(value)))

    def _on_call(self, number: int, name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        procedure = self._procedures.get(name)
        if procedure is None:
            self._say('result', number, False, f'there is no procedure {name!r:.60}')
            return
        threading.Thread(target=self._answer, args=(number, procedure, args, kwargs), daemon=True).start()

    def _answer(self, number: int, procedure: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
        """Run a procedure, in its own thread."""
        try:
            value = procedure(*args, **kwargs)
            codec.pack(value)
        except BaseException as error:   # of the user's code, also SystemExit: the caller gets it
            self._loop.call_soon(self._say, 'result', number, False, sentence(error))
        else:
            self._loop.call_soon(self._say, 'result', number, True, value)
