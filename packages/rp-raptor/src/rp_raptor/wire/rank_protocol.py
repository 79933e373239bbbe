"""What a worker's manager and its ranks tell each other: the run file, the messages, the signals.

A rank is started with the environment variable `RP_RAPTOR_RUN`, the path of a file that only its owner can read
(`Run`). It connects a DEALER socket with the keys in it to the manager's ROUTER socket. Messages are single frames,
lists in the form of `rp_api.wire.codec`. Its number is in `RP_RAPTOR_RANK`; that of a rank of an MPI job is its rank in
COMM_WORLD, which the variable `Run.rank_variable` has, too.

To a rank:

    ['define', fid, blob]         a function: 16 bytes, and what cloudpickle made of it; comes before its first call
    ['forget', fid]               it will not be called any more
    ['calls', first, ids, payloads]
                                  a bulk of calls, at the positions first, first + 1, ...
    ['alone', position, id, payload, devices]
                                  one call that has the GPUs of several ranks, which have no other calls
    ['mpi', position, id, payload, group, tag, devices]
                                  a call of several ranks; all in `group` (ranks in COMM_WORLD, ascending) get it, each
                                  with a position of its own; `tag` is for MPI.Comm.Create_group
    ['cancel', ids, reason]       give up these calls that are parked; the reason is CANCEL or TIMEOUT
    ['ran', number, payload]      the result of a task that the rank has asked to be run, as payload of kind D
    ['run_here', number]          run it yourself, as no other rank might be left that can: all would wait
    ['stop']                      finish what runs, send what is finished, and end

From a rank:

    ['hello', rank, pid, started] ready for calls; the process and when it was started
    ['results', ids, payloads, seconds]
                                  finished calls, and the time that the rank was busy with them
    ['part', id, payload, seconds]
                                  this rank's part of an 'mpi' call; the manager joins the parts of the group
    ['parked', ids]               taken, and still running while the rank goes on with others (async functions)
    ['run', number, description, needs]
                                  run this task elsewhere, I wait for it; packed (`codec.pack`), `number` is the rank's
                                  own, for 'ran'; needs as the attributes of calls in `rp_raptor.wire.protocol`
    ['submit', number, description]
                                  the same for a task that no rank is needed for
    ['ran_here', number, description, payload]
                                  the result of such a task, as payload of kind D; the final one is in 'ran'
    ['failed', reason]            it cannot work at all (its class cannot be loaded), and ends

Ids are numbers of 64 bits, several of them `array('Q')` as bytes (`pack_ids`, `unpack_ids`). Payloads are opaque to
the manager.

**Taking.** Calls of a bulk that are not started can be taken back. Before it runs a call, also one that is 'alone' or
'mpi', a rank calls `Cursors.take(rank, position)` (see `cursor`). If that is False, it has lost this call and the
rest of the bulk, and says nothing about them. So both know at any moment which call was started, also when the rank is
dead. A rank runs its messages in the order in which they come. It sends results when its bulk is done, after some ms at
the latest, and always before it waits.

**Interrupting.** A running call that took too long or was canceled is interrupted by SIGUSR1. Before, the manager sets
the rank's mark (`Cursors.mark`) to `interruption(position, reason)`. The handler, which is there before 'hello', raises
CallTimeout or CallCanceled only if that is the position of the call that runs (`interrupted`), as the signal may
come late. A rank that goes on is killed. A signal that is not for the running call asks the rank to send at once the
results that it has: they must not wait for a call that turns out to be long.

**Ends.** A rank ends by itself when the manager (`Run.pid`, `Run.started`) is gone. It closes the connection only after
'stop' or 'failed'.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.transport.keys import read_private
from rp_api.wire import form

RUN_VARIABLE = 'RP_RAPTOR_RUN'
RANK_VARIABLE = 'RP_RAPTOR_RANK'

TIMEOUT, CANCEL = 0, 1
"""Why a call is interrupted."""

_NUMBER, _BYTES, _LIST = form.is_a(int), form.is_bytes, form.is_list

TO_RANK: form.Table = {
    'define': (_BYTES, _BYTES),
    'forget': (_BYTES,),
    'calls': (_NUMBER, _BYTES, _LIST),
    'alone': (_NUMBER, _NUMBER, _BYTES, _LIST),
    'mpi': (_NUMBER, _NUMBER, _BYTES, _LIST, _NUMBER, _LIST),
    'cancel': (_BYTES, _NUMBER),
    'ran': (_NUMBER, _BYTES),
    'run_here': (_NUMBER,),
    'stop': (),
}
FROM_RANK: form.Table = {
    'hello': (_NUMBER, _NUMBER, _NUMBER),
    'results': (_BYTES, _LIST, form.is_a(float)),
    'part': (_NUMBER, _BYTES, form.is_a(float)),
    'parked': (_BYTES,),
    'run': (_NUMBER, _BYTES, form.is_dict),
    'submit': (_NUMBER, _BYTES),
    'ran_here': (_NUMBER, _BYTES, _BYTES),
    'failed': (form.is_text,),
}

_LIMIT = 1 << 20   # bytes of a run file


@dataclass(frozen=True)
class Run:
    """What the ranks of a worker are told when they start.

    `address`, `server`, `public` and `secret` are for the connection, keys as text. `file` and `class_name` say what
    the worker is, both empty for one that runs its own script. `devices` are the GPUs of each rank in the form that
    `device_variable` takes, which is empty where there are none. `cursors` is the path of the shared words.
    """

    address: str
    server: str
    public: str
    secret: str
    pid: int
    started: int | None
    worker: str
    master: str
    file: str
    class_name: str
    ranks: int
    cores_per_rank: int
    mpi: bool
    rank_variable: str
    device_variable: str
    devices: list[list[str]]
    cursors: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a new file that nobody else can read at any moment; OSError if one is there."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, 'w') as file:
            json.dump(asdict(self), file)

    def __repr__(self) -> str:
        return f'Run(worker={self.worker!r}, ranks={self.ranks})'   # never the keys


def load_run(path: str | os.PathLike[str]) -> Run:
    """What a run file says; CoordinationError if it is not ours alone or not a run file."""
    try:
        found = json.loads(read_private(path, _LIMIT))
        return Run(**{field.name: found[field.name] for field in fields(Run)})
    except (ValueError, TypeError, KeyError) as error:
        raise CoordinationError(f'refusing the run file {os.fspath(path)}: {error!r}') from error


def pack_ids(ids: Iterable[int]) -> bytes:
    """The bytes of ids."""
    return array('Q', ids).tobytes()


def unpack_ids(data: bytes) -> array[int]:
    """The ids; CoordinationError if these are not as many bytes as ids have."""
    ids = array('Q')
    try:
        ids.frombytes(data)
    except ValueError as error:
        raise CoordinationError(f'malformed message: ids of {len(data)} bytes') from error
    return ids


def parse(data: bytes, forms: form.Table) -> list[Any]:
    """The message, one of `forms` (TO_RANK or FROM_RANK); CoordinationError for anything else."""
    operation, arguments = form.parse(data, forms, 'a manager' if forms is TO_RANK else 'a rank')
    return [operation, *arguments]


def interruption(position: int, reason: int) -> int:
    """The mark that says that the call at this position is to be interrupted."""
    return position << 1 | reason


def interrupted(mark: int) -> tuple[int, int]:
    """The position and the reason that a mark holds."""
    return mark >> 1, mark & 1
