"""Runs payloads of calls: defined functions, chunks of calls of them, described tasks."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rp_api import pickles
from rp_api.blobs import Bytes
from rp_api.errors import DeserializationError
from rp_api.wire import codec
from rp_api.wire.codec import NOTHING
from rp_profiling.write.calls import ASYNC, DONE, FAILED, FUNCTION, INTERRUPTED
from rp_raptor import definitions
from rp_raptor.errors import CallCanceled, CallTimeout
from rp_raptor.rank import modes
from rp_raptor.rank.capture import encode_error, speaking
from rp_raptor.rank.prepared import DECISIVE, Prepared
from rp_raptor.rank.process_end import end_if_forked
from rp_raptor.rank.recorder import CallRecorder
from rp_raptor.rank.running import Functions, arguments
from rp_raptor.wire import payload
from rp_raptor.wire.large_calls import LARGE_CALL, opened_call
from rp_raptor.wire.result_files import ResultFiles

Later = Coroutine[Any, Any, bytes]

_FUNCTION, _CHUNK, _DESCRIBED, _LIKE = b'F', b'C', b'D', b'T'


class Calls:
    """Runs payloads in a rank; files of large results go to `directory` or `carried` if not to their caller's.

    `recorder` gets records of calls within chunks and of asynchronous calls.
    """

    def __init__(self, host: modes.Host, directory: str, recorder: CallRecorder, carried: str = '') -> None:
        self.functions = Functions(directory, self._later, carried)
        self._host = host
        self._recorder = host.recorder = recorder
        self._prepared: dict[bytes, Prepared] = {}

    def run(self, call: bytes) -> bytes | Later:
        """Return the result of a call, or a coroutine that returns it; raise if there can be none."""
        kind = call[:1]
        if kind == _LIKE:
            return self._run_alike(call, {})
        if kind == _FUNCTION:
            return self.functions.run(call)
        if kind == _CHUNK:
            return self._run_chunk(payload.fid_of(call), payload.decode_chunk(call))
        if kind == LARGE_CALL:
            return self._run_large(call)
        if kind == _DESCRIBED:
            return self.run_described(payload.decode_described(call), {})
        raise DeserializationError(f'a call of kind {kind!r} is unknown')

    def run_part(self, call: bytes, comm: Any) -> bytes | Later:
        """Return this rank's part of the result of a call that several ranks run together."""
        if call[:1] in (_DESCRIBED, _LIKE):
            self._host.comm = comm
            try:
                if call[:1] == _LIKE:
                    return self._run_alike(call, _place(comm))
                return self.run_described(payload.decode_described(call), _place(comm))
            finally:
                self._host.comm = None
        fid, args, kwargs = _function_call(call)
        return self.functions.invoke(fid, *definitions.with_communicator([comm], args, kwargs or {}))

    def run_described(self, task: Mapping[str, Any], variables: Mapping[str, str]) -> bytes | Later:
        """Return the result of a described task (a dict with uid, description and sandbox), as `run` does."""
        return modes.run(self._host, Prepared(task['description']), {}, task['uid'], task['sandbox'], variables)

    def forget(self, fid: bytes) -> None:
        """Drop a definition that no further call refers to."""
        self.functions.forget(fid)
        self._prepared.pop(fid, None)

    @contextmanager
    def without_communicator(self) -> Generator[None, None, None]:
        """Run tasks as tasks of one rank, also within a call of several ranks."""
        comm, self._host.comm = self._host.comm, None
        try:
            yield
        finally:
            self._host.comm = comm

    def _run_alike(self, call: bytes, variables: Mapping[str, str]) -> bytes | Later:
        fid = payload.fid_of(call)
        uid, sandbox, rest = payload.decode_alike(call)
        own = codec.unpack_dict(rest) if rest != NOTHING else {}
        if DECISIVE.isdisjoint(own):
            prepared = self._prepared.get(fid)
            if prepared is None:
                prepared = self._prepared[fid] = Prepared(codec.unpack_dict(self.functions.definition(fid)))
        else:
            prepared = Prepared({**codec.unpack_dict(self.functions.definition(fid)), **own})
            own = {}
        return modes.run(self._host, prepared, own, uid, sandbox, variables)

    def _run_large(self, call: bytes) -> bytes | Later:
        start, body, buffers = opened_call(call)
        if start[:1] == _CHUNK:
            return self._run_chunk(payload.fid_of(start), payload.chunk_of(body, buffers))
        return self.functions.invoke(payload.fid_of(start), *_restored(body, buffers))

    def _run_chunk(self, fid: bytes, calls: list[tuple[Sequence[Any], dict[str, Any]]]) -> bytes | Later:
        func, files = self.functions.find(fid)
        outcomes: list[bytes | Later] = []
        lap = self._recorder.lap
        for args, kwargs in calls:
            try:
                outcome = self.functions.outcome(func(*args, **kwargs), files.nested)
            except (CallTimeout, CallCanceled):
                lap(INTERRUPTED)
                raise
            except BaseException as error:
                end_if_forked(error)
                outcome = encode_error(error)
                lap(FAILED)
            else:
                if type(outcome) is bytes:
                    lap(DONE)
            outcomes.append(outcome)
        done = [outcome for outcome in outcomes if isinstance(outcome, bytes)]
        if len(done) == len(outcomes):
            return payload.encode_outcomes(done, files)
        return self._gather(outcomes, files)

    async def _gather(self, outcomes: Sequence[bytes | Later], files: ResultFiles) -> bytes:
        import asyncio

        async def outcome(each: bytes | Later) -> bytes:
            return each if isinstance(each, bytes) else await each
        return payload.encode_outcomes(await asyncio.gather(*map(outcome, outcomes)), files)

    async def _later(self, call: Coroutine[Any, Any, Any], files: ResultFiles) -> bytes:
        with speaking(files.output) as spoken:
            return spoken.attached(await self._result_of(call, files))

    async def _result_of(self, call: Coroutine[Any, Any, Any], files: ResultFiles) -> bytes:
        from asyncio import CancelledError

        start = self._recorder.now()
        outcome = DONE
        try:
            value = await call
            end_if_forked()
            return payload.encode_value(value, files)
        except CancelledError:
            outcome = INTERRUPTED
            raise
        except BaseException as error:
            end_if_forked(error)
            outcome = FAILED
            return encode_error(error)
        finally:
            self._recorder.since(start, FUNCTION | ASYNC | outcome)


def _function_call(call: bytes) -> tuple[bytes, Sequence[Any], dict[str, Any] | None]:
    """Return identifier of the function, arguments and keyword arguments of a call of a function."""
    start, body, buffers = opened_call(call) if call[:1] == LARGE_CALL else (call, b'', [])
    if start[:1] != _FUNCTION:
        raise DeserializationError(f'a call of kind {start[:1]!r} cannot be run by several ranks')
    args, kwargs = arguments(call) if start is call else _restored(body, buffers)
    return payload.fid_of(start), args, kwargs


def _restored(body: Bytes, buffers: Sequence[Bytes]) -> tuple[Sequence[Any], dict[str, Any] | None]:
    found: Any = pickles.restore(body, 'the arguments', buffers)
    args, kwargs = found
    return args, kwargs


def _place(comm: Any) -> Mapping[str, str]:
    return {'RP_RANK': str(comm.rank), 'RP_RANKS': str(comm.size)}
