"""The protocol between a worker's manager and its ranks: run file, messages, signals.

A rank is started with the environment variable `RP_RAPTOR_RUN`, the path of a file that only its owner can read
(`Run`). It connects a DEALER socket with the keys in it to the manager's ROUTER socket. Messages are single frames:
lists in the form of `rp_api.wire.codec`. The number of a rank among all of the worker is in `RP_RAPTOR_RANK`; in an
MPI job it is the rank in COMM_WORLD, which the variable `Run.rank_variable` has, too. In messages and in the shared
words, a rank is known by its place among the ranks of its manager (`Run.numbers`).

To a rank:

    ['define', fid, blob]         a function: 16 bytes, and its cloudpickle; comes before its first call
    ['forget', fid]               no further call refers to it
    ['calls', first, ids, payloads]
                                  a bulk of calls, at the positions first, first + 1, ...
    ['alone', position, id, payload, devices, cpus]
                                  one call that has the GPUs and CPUs of several ranks, which have no other calls
    ['mpi', position, id, payload, group, tag, devices]
                                  a call of several ranks; all in `group` (ranks in COMM_WORLD, ascending) get it, each
                                  with a position of its own; `tag` is for MPI.Comm.Create_group
    ['cancel', ids, reason]       cancel these asynchronous calls; the reason is CANCEL or TIMEOUT
    ['ran', number, payload]      the result of a task that the rank has submitted, as payload of kind D
    ['run_here', number]          run the task yourself, as otherwise all ranks might wait for ever
    ['object', id, path, fault]   the answer to 'fetch': the file of the object, to be mapped, or why there is none
    ['drop', id]                  no further call refers to this object
    ['stop']                      finish the running call, send all results, and end

From a rank:

    ['hello', place, pid, started]
                                  ready for calls; the process and its start time
    ['results', ids, payloads, seconds]
                                  finished calls, and the time that the rank was busy with them
    ['part', id, payload, seconds]
                                  this rank's part of an 'mpi' call; the manager joins the parts of the group
    ['parked', ids]               asynchronous calls that run on while the rank accepts others
    ['run', number, description, needs]
                                  run this packed task on another rank (`codec.pack`); `number` is the rank's, for
                                  'ran'; needs as the attributes of calls in `rp_raptor.wire.protocol`
    ['submit', number, description]
                                  the same for a task that the agent runs
    ['ran_here', number, description, payload]
                                  the result of such a task, as payload of kind D; the final one is in 'ran'
    ['fetch', id]                 a call refers to this object (16 bytes)
    ['failed', reason]            the rank cannot work (its class cannot be loaded), and ends

Ids are numbers of 64 bits, several of them the bytes of an `array('Q')`. Payloads are opaque to the manager; those of
a bulk travel in one piece (see `batch`).

**Taking.** Calls of a bulk that are not started can be taken back. Before it runs a call, including one that is 'alone'
or 'mpi', a rank calls `Cursors.take(rank, position)` (see `cursor`). If that is False, it has lost this call and the
rest of the bulk, and reports nothing about them. So both sides know at any moment which call was started, even if the
rank is dead. A rank handles messages in the order of their arrival. It sends results at the end of a bulk, after some
milliseconds at the latest, and always before it waits.

**Interrupting.** A running call that exceeds its timeout or is cancelled is interrupted by SIGUSR1. Before, the manager
sets the rank's mark (`Cursors.mark`) to `interruption(position, reason)`. The handler, which is installed before
'hello', raises CallTimeout or CallCanceled only if that is the position of the running call (`interrupted`), as the
signal may be late. A rank that does not react is killed. A signal that is not for the running call asks the rank to
send its results at once: they must not wait for the end of a long call.

**End.** A rank ends when the manager (`Run.pid`, `Run.started`) is lost. It closes the connection only after 'stop' or
'failed'.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from typing import Any

from rp_api.errors import CoordinationError
from rp_api.raptor_link import RUN
from rp_api.transport.keys import read_private
from rp_api.wire import form
from rp_raptor.wire.protocol import are_ids, are_payloads, parse_message

RUN_VARIABLE = RUN
RANK_VARIABLE = 'RP_RAPTOR_RANK'

TIMEOUT, CANCEL = 0, 1
"""Reasons to interrupt a call."""

_NUMBER, _BYTES, _LIST, _SECONDS = form.is_a(int), form.is_bytes, form.is_list, form.is_a(float)

TO_RANK: form.Table = {
    'define': (_BYTES, _BYTES),
    'forget': (_BYTES,),
    'calls': (_NUMBER, are_ids, are_payloads),
    'alone': (_NUMBER, _NUMBER, _BYTES, _LIST, _LIST),
    'mpi': (_NUMBER, _NUMBER, _BYTES, _LIST, _NUMBER, _LIST),
    'cancel': (are_ids, _NUMBER),
    'ran': (_NUMBER, _BYTES),
    'run_here': (_NUMBER,),
    'object': (_BYTES, form.is_text, form.is_text),
    'drop': (_BYTES,),
    'stop': (),
}
FROM_RANK: form.Table = {
    'hello': (_NUMBER, _NUMBER, _NUMBER),
    'results': (are_ids, are_payloads, _SECONDS),
    'part': (_NUMBER, _BYTES, _SECONDS),
    'parked': (are_ids,),
    'run': (_NUMBER, _BYTES, form.is_dict),
    'submit': (_NUMBER, _BYTES),
    'ran_here': (_NUMBER, _BYTES, _BYTES),
    'fetch': (_BYTES,),
    'failed': (form.is_text,),
}

_LIMIT = 1 << 20   # bytes of a run file


@dataclass(frozen=True)
class Run:
    """The configuration of a worker's ranks.

    `address`, `server`, `public` and `secret` are for the connection, keys as text. `file` and `class_name` name the
    class of the worker; both are empty if it runs its own script. The worker has `ranks` ranks, and the manager those
    with these `numbers`. `devices` are the GPUs of each of them in the form of the variable `device_variable`, which is
    empty if there are none, `cpus` the CPUs that each binds itself to, if any. `cursors` is the path of the words,
    `results` the directory for large results that carriers take, if they do.
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
    numbers: list[int]
    cores_per_rank: int
    mpi: bool
    rank_variable: str
    device_variable: str
    devices: list[list[str]]
    cpus: list[list[int]]
    cursors: str
    results: str = ''

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the configuration to a new file that only its owner can read; OSError if the file exists."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, 'w') as file:
            json.dump(asdict(self), file)

    def __repr__(self) -> str:
        return f'Run(worker={self.worker!r}, ranks={self.ranks})'   # never the keys


def load_run(path: str | os.PathLike[str]) -> Run:
    """Return the content of a run file; CoordinationError if others may write it, or it is not valid."""
    try:
        found = json.loads(read_private(path, _LIMIT))
        return Run(**{field.name: found[field.name] for field in fields(Run)})
    except (ValueError, TypeError, KeyError) as error:
        raise CoordinationError(f'refusing the run file {os.fspath(path)}: {error!r}') from error


def parse(data: bytes, forms: form.Table) -> tuple[str, list[Any]]:
    """Return operation and arguments of a message of `forms` (TO_RANK or FROM_RANK); else CoordinationError."""
    return parse_message(data, forms, 'a manager' if forms is TO_RANK else 'a rank')


def interruption(position: int, reason: int) -> int:
    """Return the mark that requests the interruption of the call at this position."""
    return position << 1 | reason


def interrupted(mark: int) -> tuple[int, int]:
    """Return the position and the reason in a mark."""
    return mark >> 1, mark & 1
