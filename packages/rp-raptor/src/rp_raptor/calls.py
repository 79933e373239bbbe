"""What is in a payload is run: functions that were defined before, chunks of calls of them, described tasks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from rp_api.errors import DeserializationError
from rp_api.functions import deserialize_obj
from rp_raptor import communicators, dispatch, payload
from rp_raptor.capture import goes_on, traceback_of
from rp_raptor.errors import CallCanceled, CallTimeout

if TYPE_CHECKING:
    from rp_raptor.worker import Worker

Later = Coroutine[Any, Any, bytes]

_FUNCTION, _CHUNK, _DESCRIBED = b'F', b'C', b'D'
_ARGUMENTS = 1 + payload.FID_BYTES   # where they start


class Calls:
    """Runs payloads with the worker; files of large results go to `directory`."""

    def __init__(self, worker: Worker, directory: str) -> None:
        self._worker = worker
        self._directory = directory
        self._blobs: dict[bytes, bytes] = {}
        self._functions: dict[bytes, Callable[..., Any]] = {}

    def define(self, fid: bytes, blob: bytes) -> None:
        """Keep a function, which is restored when it is first called."""
        self._blobs[fid] = blob

    def forget(self, fid: bytes) -> None:
        """Drop a function that will not be called any more."""
        self._blobs.pop(fid, None)
        self._functions.pop(fid, None)

    def run(self, call: bytes) -> bytes | Later:
        """The result of a call, or a coroutine that gives it; raises whatever prevents it from having one."""
        kind = call[:1]
        if kind == _FUNCTION:
            fid = call[1:_ARGUMENTS]
            func = self._functions.get(fid) or self._restore(fid)
            args, kwargs = _arguments(call)
            value = func(*args, **kwargs) if kwargs else func(*args)
            if goes_on(value):
                return self._later(value)
            return payload.encode_value(value, self._directory)
        if kind == _CHUNK:
            return self._run_chunk(call)
        if kind == _DESCRIBED:
            return dispatch.run(self._worker, payload.decode_described(call), {})
        raise DeserializationError(f'a call of kind {kind!r} is unknown')

    def run_part(self, call: bytes, comm: Any) -> bytes | Later:
        """The part that this rank has in the result of a call which several ranks run together."""
        worker = self._worker
        if call[:1] == _DESCRIBED:
            worker._rp_comm = comm
            try:
                return dispatch.run(worker, payload.decode_described(call), _place(comm))
            finally:
                worker._rp_comm = None
        if call[:1] != _FUNCTION:
            raise DeserializationError(f'a call of kind {call[:1]!r} cannot be run by several ranks')
        args, kwargs = _arguments(call)
        args, kwargs = communicators.insert(comm, args, kwargs or {}) or ([comm, *args], kwargs or {})
        fid = call[1:_ARGUMENTS]
        value = (self._functions.get(fid) or self._restore(fid))(*args, **kwargs)
        if goes_on(value):
            return self._later(value)
        return payload.encode_value(value, self._directory)

    def _run_chunk(self, call: bytes) -> bytes | Later:
        fid = call[1:_ARGUMENTS]
        func = self._functions.get(fid) or self._restore(fid)
        outcomes: list[bytes | Coroutine[Any, Any, bytes]] = []
        later = False
        for args, kwargs in payload.decode_chunk(call):
            try:
                value = func(*args, **kwargs)
                if goes_on(value):
                    outcomes.append(self._later(value))
                    later = True
                else:
                    outcomes.append(payload.encode_value(value, self._directory))
            except (CallTimeout, CallCanceled):
                raise
            except BaseException as error:
                outcomes.append(encode_error(error))
        return self._gather(outcomes) if later else payload.encode_outcomes(
            outcomes, self._directory)  # type: ignore[arg-type]

    async def _gather(self, outcomes: Sequence[bytes | Coroutine[Any, Any, bytes]]) -> bytes:
        import asyncio

        async def outcome(each: bytes | Coroutine[Any, Any, bytes]) -> bytes:
            return each if isinstance(each, bytes) else await each
        return payload.encode_outcomes(await asyncio.gather(*map(outcome, outcomes)), self._directory)

    async def _later(self, call: Coroutine[Any, Any, Any]) -> bytes:
        from asyncio import CancelledError

        try:
            return payload.encode_value(await call, self._directory)
        except CancelledError:
            raise
        except BaseException as error:
            return encode_error(error)

    def _restore(self, fid: bytes) -> Callable[..., Any]:
        blob = self._blobs.get(fid)
        if blob is None:
            raise DeserializationError(f'the function {fid.hex()} was never defined')
        func: Callable[..., Any] = deserialize_obj(blob)
        self._functions[fid] = func
        return func


def encode_error(error: BaseException) -> bytes:
    """What a call has raised, as its result."""
    text = traceback_of(error)
    if isinstance(error, CallTimeout):
        error = TimeoutError(str(error))
    elif isinstance(error, CallCanceled):
        error = CancelledError(str(error))
    return payload.encode_error(error, text)


def _arguments(call: bytes) -> tuple[Sequence[Any], dict[str, Any] | None]:
    try:
        args, kwargs = pickle.loads(memoryview(call)[_ARGUMENTS:])
    except Exception as error:
        raise DeserializationError(f'the arguments cannot be restored: {error!r}', error) from error
    return args, kwargs


def _place(comm: Any) -> Mapping[str, str]:
    return {'RP_RANK': str(comm.rank), 'RP_RANKS': str(comm.size)}
