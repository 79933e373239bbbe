"""What a master says to its workers and to applications, and what they say to it: names, meaning, form.

Messages are msgpack lists, `[operation, arguments...]`, in one frame each. The master has a ROUTER socket, the others
have DEALER sockets. It knows by the key of a peer whether that is a worker (its manager) or an application, and drops
what such a peer may not say.

Calls have numbers that the one who sends them gives, and never twice: applications such below CALLS, the master such of
64 bits. Where a message has many of them, `ids` is the bytes of an `array('Q')`, in the order of the payloads beside
it. Payloads are opaque here (see `payload`). `attributes` are for the calls that differ from the default:
`{id: {'timeout': seconds, 'ranks': n, 'cores': n, 'gpus': n}}`, or None; any of the four may be missing.

The addresses and keys are in `rp_api.raptor_link.master_file()` for workers; applications get theirs with the state of
the master.

`started` is when the process was started (`rp_api.system.processes.start_time`): its number alone may be another's by
now.

Each connection starts anew. A peer says `worker` or `open` first, and again after each handshake, as a connection that
was lost may have lost messages: the master then takes back all calls that the worker had, and gives them to workers
again, this one included; the worker drops what it has not started, and does not wonder that nobody wants the results of
the rest. An application sends the calls again that it has no results of. So results may come that nobody expects any
more: who gets them drops them.

From the manager of a worker:

    worker, uid, host, pid, ranks, info     hello; `host` is `rp_api.system.host.host_id()`, info: {'mpi': bool,
                                            'protocol': PROTOCOL, 'host_name': str, 'started': int}
    credit, n                               it takes n calls more
    results, ids, payloads                  each call has one result
    returned, ids                           calls that were not started, given back because of `give_back`
    died, ids, reason                       the rank that ran these calls is dead; they have no result. The other
                                            calls of that rank the manager gives to its other ranks
    rank_states, {rank: 'ACTIVE' or 'DEAD'} what is new about ranks. A worker is active when all its ranks have been
    run, number, description, result        a rank wants this task run (`get_master().run_task`): packed description; or
                                            it has run it: a payload of kind D, else empty
    ping                                    every PING seconds; the answer is `pong`
    bye, reason                             it ends (no reason: it was told to); others get the calls that it has

To the manager of a worker:

    welcome, {'uid', 'host', 'pid', 'started'}
                                            who and where the master is
    refused, reason                         the manager can end: another version, or a name that is taken
    define, fid, blob                       a function that calls may refer to; before them
    forget, fid                             no call will refer to it any more
    calls, ids, payloads, attributes        never more than the credit
    give_back, n                            give back up to n calls that no rank has started; `returned` is the answer,
                                            also if there are none
    cancel, ids                             calls whose results are CancelledErrors, unless they were done first
    ran, number, payload                    the result of `run`: a payload of kind D
    pong
    stop                                    end now; whatever is running is killed

From an application:

    open, stream, info                      hello; `stream` is a unique name of this one, info: {'protocol': PROTOCOL,
                                            'host': host_id(), 'pid': pid, 'started': int}
    define, fid, blob
    calls, ids, payloads, attributes        never more than there is room
    cancel, ids                             each call still has a result, a CancelledError if it was in time
    ping                                    every PING seconds; the answer is `pong`
    close                                   it ends; its calls are dropped, or cancelled if they run

To an application:

    welcome, {'uid', 'host', 'pid', 'started'}
    refused, reason
    room, n                                 n calls more may be sent: WINDOW after `open`, then as results come
    results, ids, payloads
    pong
    ended, reason                           the master ends: calls without a result will have none from it
"""

from __future__ import annotations

import math
from array import array
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.wire import form
from rp_raptor.wire.ids import are_payloads

PROTOCOL = 1
"""Version of what is described here."""

PING = 5.0
"""Seconds between the signs of life of a manager and of an application."""

SILENCE = 60.0
"""Seconds without any message after which a peer on another node counts as lost (on the same one: once it is dead)."""

WINDOW = 65536
"""Calls of an application that the master holds at most, without a result."""

BULK = 1024
"""Most calls in one message."""

CALLS = 1 << 40
"""The numbers of an application's calls are smaller: the master puts the number of the application in front."""

WORKER, APPLICATION = 'worker', 'application'
"""The roles of a master's peers."""

FID = 16
"""Length of the digest that names a function."""

ATTRIBUTES = frozenset({'timeout', 'ranks', 'cores', 'gpus'})

Message = list[Any]


def ids_of(data: bytes) -> array[int]:
    """The numbers of calls from a message."""
    ids = array('Q')
    ids.frombytes(data)
    return ids


def parse(data: bytes, role: str) -> tuple[str, list[Any]]:
    """Operation and arguments of a message to the master from a peer of that role; else CoordinationError."""
    return _parse(data, _FROM[role], role)


def parse_from_master(data: bytes, role: str) -> tuple[str, list[Any]]:
    """Operation and arguments of a message from the master to a peer of that role; else CoordinationError."""
    return _parse(data, _TO[role], 'master')


def _parse(data: bytes, table: form.Table, role: str) -> tuple[str, list[Any]]:
    operation, arguments = form.parse(data, table, f'a {role}')
    if operation in _PAIRED and len(arguments[0]) != 8 * len(arguments[1]):
        raise CoordinationError(f'malformed message: {operation!r} has not as many payloads as calls')
    return operation, arguments


def _are_ids(value: Any) -> bool:
    return type(value) is bytes and not len(value) % 8


def _are_payloads(value: Any) -> bool:
    return type(value) is list and are_payloads(value)


def _is_fid(value: Any) -> bool:
    return type(value) is bytes and len(value) == FID


def _are_attributes(value: Any) -> bool:
    return value is None or (type(value) is dict and all(
        type(key) is int and type(each) is dict and each.keys() <= ATTRIBUTES and all(
            type(number) in (int, float) and 0 <= number < math.inf for number in each.values())
        for key, each in value.items()))


def _are_states(value: Any) -> bool:
    return type(value) is dict and all(
        type(rank) is int and state in ('ACTIVE', 'DEAD') for rank, state in value.items())


_PAIRED = frozenset({'calls', 'results'})
_TEXT, _DICT, _BYTES, _NUMBER = form.is_text, form.is_dict, form.is_bytes, form.is_number

_BOTH_SAY: form.Table = {'ping': ()}
_BOTH_HEAR: form.Table = {'welcome': (_DICT,), 'refused': (_TEXT,), 'pong': ()}
_DEFINE, _CALLS = (_is_fid, _BYTES), (_are_ids, _are_payloads, _are_attributes)
_RESULTS = (_are_ids, _are_payloads)

_FROM: dict[str, form.Table] = {
    WORKER: {
        **_BOTH_SAY, 'worker': (_TEXT, _TEXT, _NUMBER, _NUMBER, _DICT), 'credit': (_NUMBER,),
        'results': _RESULTS, 'returned': (_are_ids,), 'died': (_are_ids, _TEXT), 'rank_states': (_are_states,),
        'run': (_NUMBER, _BYTES, _BYTES), 'bye': (_TEXT,)},
    APPLICATION: {
        **_BOTH_SAY, 'open': (_TEXT, _DICT), 'define': _DEFINE, 'calls': _CALLS, 'cancel': (_are_ids,), 'close': ()}}

_TO: dict[str, form.Table] = {
    WORKER: {
        **_BOTH_HEAR, 'define': _DEFINE, 'forget': (_is_fid,), 'calls': _CALLS, 'give_back': (_NUMBER,),
        'cancel': (_are_ids,), 'ran': (_NUMBER, _BYTES), 'stop': ()},
    APPLICATION: {**_BOTH_HEAR, 'room': (_NUMBER,), 'results': _RESULTS, 'ended': (_TEXT,)}}
