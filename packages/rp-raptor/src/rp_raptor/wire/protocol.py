"""Messages between a master and its workers and applications: names, meaning, form.

Messages are msgpack lists, `[operation, arguments...]`, in one frame each. The master has a ROUTER socket, its peers
have DEALER sockets. The key of a peer tells the master whether it is a worker (the manager) or an application; messages
that are not allowed for that role are dropped.

The sender numbers calls and never reuses a number: numbers of applications are below CALLS, those of the master have 64
bits. Where a message has many of them, `ids` is the bytes of an `array('Q')`, in the order of the payloads beside it.
Payloads travel in one piece (see `batch`), and are opaque here (see `payload`). `attributes` belong to the calls that
differ from the default: `{id: {'timeout': seconds, 'ranks': n, 'cores': n, 'gpus': n}}`, or None; each of the four is
optional.

Addresses and keys are in `rp_api.raptor_link.master_file()` for workers; applications get theirs with the state of the
master.

`started` is the start time of the process (`rp_api.system.processes.start_time`), as process ids are reused. `place` is
`rp_api.system.shared_directory.place()`: calls whose arguments are in files (see `large_calls`) reach a peer of the
same place as they are, and others with the content of the files. A manager whose messages carriers take to the first
manager of its worker says the place of that, which passes the files on.

Each connection starts anew. A peer sends `worker` or `open` first, and again after each handshake, as messages may be
lost with a connection: the master then takes back all calls that the worker had, and sends them to workers again, this
one included; the worker drops the calls that it has not started, and the results of the others are ignored. An
application sends the calls again that have no result. A peer drops results that it does not expect.

From the manager of a worker:

    worker, uid, host, pid, ranks, info     hello; `host` is `rp_api.system.host.host_id()`, info: {'mpi': bool,
                                            'protocol': PROTOCOL, 'host_name': str, 'started': int, 'place': str}. A
                                            worker that spans nodes has a manager on each: info then has the number of
                                            its `part`, how many `parts` there are, the `numbers` of its ranks, and the
                                            `total` of ranks
    credit, n                               it accepts n further calls
    results, ids, payloads                  each call has one result
    returned, ids                           calls that were not started, given back because of `give_back`
    died, ids, reason                       the rank that ran these calls is dead; they have no result. The manager
                                            gives the other calls of that rank to its other ranks
    rank_states, {rank: 'ACTIVE' or 'DEAD'} changes of ranks, by their numbers in the worker, which is active when all
                                            its ranks have been
    run, number, description, result        run this task for a rank (`get_master().run_task`), a packed description; if
                                            the rank has run it, the result is a payload of kind D, else empty
    want_object, id, place, failed, carried a rank of it needs this object (16 bytes); `place` is
                                            `rp_api.system.shared_directory.place()`, `failed` has the uids of holders
                                            that did not give it; if it is `carried`, carriers can bring it from the
                                            first manager of the worker
    hold_object, id, place, path, access    it has got this object: a file, and the `Access` of a listener for others
    tell, part, data                        pass this on to the manager of another part of the worker
    ping                                    every PING seconds; the answer is `pong`
    bye, reason                             it ends (no reason: it was stopped); others get its calls

To the manager of a worker:

    welcome, {'uid', 'host', 'pid', 'started', 'place', 'results'}
                                            the master's uid and process, and where it takes large results in files
                                            (`ValueStore.results`), see `carried_results`
    refused, reason                         the manager can end: another version, or a uid that is in use
    define, fid, blob                       a function that later calls may refer to
    forget, fid                             no further call refers to it
    calls, ids, payloads, attributes        never more than the credit
    give_back, n                            give back up to n calls that no rank has started; `returned` is the answer,
                                            also if there are none
    cancel, ids                             cancel calls: their results are CancelledErrors, unless they are done
    ran, number, payload                    the result of `run`: a payload of kind D
    object_at, id, size, holder, path, access
                                            the answer to `want_object`: a file on this host, or how to get the object
                                            from the holder (see `rp_raptor.objects.transfer`); may come again, with
                                            another holder, until `hold_object`. Without a holder, the object is to be
                                            carried
    object_lost, id, reason                 the other answer: the object is not to be had
    forget_object, id                       no further call refers to this object
    pong
    told, part, data                        the manager of another part says this
    complete, {part: ranks}                 all parts of the worker are connected, perhaps again; their numbers of ranks
    lost, reason                            end with this error: an MPI job has lost a part
    stop                                    end now; running calls are killed

From an application:

    open, stream, info                      hello; `stream` is a name of the connection, info: {'protocol': PROTOCOL,
                                            'host': host_id(), 'pid': pid, 'started': int}; if other masters share the
                                            calls, also {'share': ranks of each call}
    define, fid, blob
    calls, ids, payloads, attributes        never more than there is room
    put_object, id, size, place, path       it owns this object, in this file; sent before the first call with it
    object_piece, id, offset, data          the answer to `get_object`
    drop_object, id                         no call of it refers to the object any more; the last owner's drops it
    cancel, ids                             each call still has a result: a CancelledError, unless it is done
    give_back, n                            give back up to n calls that no rank has started; `returned` is the answer,
                                            also if there are none
    ping                                    every PING seconds; the answer is `pong`
    close                                   it ends; its calls are dropped, or cancelled if they run

To an application:

    welcome, {'uid', 'host', 'pid', 'started', 'place'}
    refused, reason
    room, n                                 n further calls may be sent: WINDOW after `open`, later as results come. If
                                            other masters share the calls: as many as the workers can take soon
    ranks, n                                if other masters share the calls: the number that the workers can run at a
                                            time, after `open` and when it changes; 0 without a worker
    results, ids, payloads
    returned, ids                           calls that were not started, given back because of `give_back`
    get_object, id, offset, length          a piece is needed, as the file cannot be read at the master
    object_ready, id, reason                the answer to `put_object`; without a reason, the master has the object
    pong
    ended, reason                           the master ends: calls without a result will get none
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.wire import form
from rp_raptor.wire.batch import unpack

PROTOCOL = 3
"""Version of this protocol."""

PING = 5.0
"""Seconds between the heartbeats of a manager and of an application."""

SILENCE = 60.0
"""Seconds without a message after which a peer on another node counts as lost (on the same node: when it dies)."""

END_REPORT_TIMEOUT_S = 2.0
"""Seconds for the agent to report how a worker has ended whose process has died."""

REPORT_DELAY = 3.0
"""Seconds after which a wait for workers that may never come is reported."""

WINDOW = 65536
"""Calls without a result that the master accepts from an application."""

BULK = 1024
"""Calls in one message at most."""

CALLS = 1 << 40
"""Limit of the numbers of an application's calls: the master uses the bits above for the number of the source."""

WORKER, APPLICATION = 'worker', 'application'
"""The roles of a master's peers."""

FID = 16
"""Bytes of the digest that identifies a function."""

OBJECT = 16
"""Bytes of the identifier of an object."""

ATTRIBUTES = frozenset({'timeout', 'ranks', 'cores', 'gpus'})

Message = list[Any]
"""Operation and arguments; ids are an `array('Q')`, payloads `Payloads` on both sides (`pack_message`, `parse`)."""

Handler = Callable[..., object]
Handlers = Mapping[str, Handler]
"""Handlers of operations, which get the arguments of a message."""


def parse(data: bytes, role: str) -> tuple[str, list[Any]]:
    """Return operation and arguments of a message to the master from a peer of that role; else CoordinationError."""
    return parse_message(data, _FROM[role], f'a {role}')


def parse_from_master(data: bytes, role: str) -> tuple[str, list[Any]]:
    """Return operation and arguments of a message from the master to a peer of that role; else CoordinationError."""
    return parse_message(data, _TO[role], 'a master')


def parse_message(data: bytes, table: form.Table, sender: str) -> tuple[str, list[Any]]:
    """Return operation and arguments of a message of a table, with ids and payloads unpacked; else CoordinationError.

    Ids and payloads of one message belong together.
    """
    operation, arguments = form.parse(data, table, sender)
    checks = table[operation]
    if are_ids in checks:
        ids = checks.index(are_ids)
        arguments[ids] = _ids(arguments[ids])
        if are_payloads in checks:
            payloads = checks.index(are_payloads)
            try:
                arguments[payloads] = unpack(arguments[payloads])
            except ValueError as error:
                raise CoordinationError(f'malformed message: {operation!r}: {error}') from error
            if len(arguments[ids]) != len(arguments[payloads]):
                raise CoordinationError(f'malformed message: {operation!r} has different numbers of calls and payloads')
    return operation, arguments


def _ids(data: bytes) -> array[int]:
    ids = array('Q')
    ids.frombytes(data)
    return ids


def are_ids(value: Any) -> bool:
    """Return whether it is the bytes of ids."""
    return type(value) is bytes and not len(value) % 8


def are_payloads(value: Any) -> bool:
    """Return whether it may be payloads, see `rp_raptor.wire.batch.unpack`."""
    return type(value) is list


def _is_fid(value: Any) -> bool:
    return type(value) is bytes and len(value) == FID


def _is_object(value: Any) -> bool:
    return type(value) is bytes and len(value) == OBJECT


def _are_attributes(value: Any) -> bool:
    return value is None or (type(value) is dict and all(
        type(key) is int and type(each) is dict and each.keys() <= ATTRIBUTES and all(
            type(number) in (int, float) and 0 <= number < math.inf for number in each.values())
        for key, each in value.items()))


def _are_states(value: Any) -> bool:
    return type(value) is dict and all(
        type(rank) is int and state in ('ACTIVE', 'DEAD') for rank, state in value.items())


_TEXT, _DICT, _BYTES, _NUMBER = form.is_text, form.is_dict, form.is_bytes, form.is_number

_BOTH_SAY: form.Table = {'ping': ()}
_BOTH_HEAR: form.Table = {'welcome': (_DICT,), 'refused': (_TEXT,), 'pong': ()}
_DEFINE, _CALLS = (_is_fid, _BYTES), (are_ids, are_payloads, _are_attributes)
_RESULTS = (are_ids, are_payloads)

_FROM: dict[str, form.Table] = {
    WORKER: {
        **_BOTH_SAY, 'worker': (_TEXT, _TEXT, _NUMBER, _NUMBER, _DICT), 'credit': (_NUMBER,),
        'results': _RESULTS, 'returned': (are_ids,), 'died': (are_ids, _TEXT), 'rank_states': (_are_states,),
        'run': (_NUMBER, _BYTES, _BYTES), 'tell': (_NUMBER, _BYTES),
        'want_object': (_is_object, _TEXT, form.are_texts, form.is_a(bool)),
        'hold_object': (_is_object, _TEXT, _TEXT, _DICT), 'bye': (_TEXT,)},
    APPLICATION: {
        **_BOTH_SAY, 'open': (_TEXT, _DICT), 'define': _DEFINE, 'calls': _CALLS, 'cancel': (are_ids,),
        'put_object': (_is_object, _NUMBER, _TEXT, _TEXT), 'object_piece': (_is_object, _NUMBER, _BYTES),
        'drop_object': (_is_object,), 'give_back': (_NUMBER,), 'close': ()}}

_TO: dict[str, form.Table] = {
    WORKER: {
        **_BOTH_HEAR, 'define': _DEFINE, 'forget': (_is_fid,), 'calls': _CALLS, 'give_back': (_NUMBER,),
        'cancel': (are_ids,), 'ran': (_NUMBER, _BYTES), 'object_at': (_is_object, _NUMBER, _TEXT, _TEXT, _DICT),
        'object_lost': (_is_object, _TEXT), 'forget_object': (_is_object,), 'told': (_NUMBER, _BYTES),
        'complete': (_DICT,), 'lost': (_TEXT,), 'stop': ()},
    APPLICATION: {
        **_BOTH_HEAR, 'room': (_NUMBER,), 'ranks': (_NUMBER,), 'results': _RESULTS, 'returned': (are_ids,),
        'get_object': (_is_object, _NUMBER, _NUMBER), 'object_ready': (_is_object, _TEXT), 'ended': (_TEXT,)}}
