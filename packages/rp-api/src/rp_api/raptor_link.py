"""The link between an agent and the RAPTOR masters that run as its tasks: names, messages, and where both sides meet.

The agent listens (ROUTER), masters connect (DEALER). A message is a frame with its number (`rp_api.transport.resend`)
and one with a msgpack list `[operation, arguments...]`; `hello`, `got` and `again` have no number. The agent writes to
`link_file()` in the pilot's sandbox how to connect, before it starts the first master; a master leaves the same for its
workers in `master_file()`. Such a file holds an `Access`, only its owner can read it, and who has written it removes it
at the end.

From a master:

    hello uid pid access          the master of that uid is up; `access` (a dict) is how the application connects to it
    credit n                      it takes n more tasks than it has asked for so far; none come unasked
    states state uids             tasks have reached a state (AGENT_EXECUTING)
    results uids [result...]      tasks are done; see `RESULT` for what a result says, all of it may be absent; that of
                                  one that is DONE may be packed, and is passed on to the application as it is
    submit [description...]       run these, each with its `uid`: workers, and executables; a task that the master has
                                  in hand comes back under its own uid, to be run as it is described now
    cancel uids                   end tasks that were submitted; each still gets its final state
    rpc_result id ok value        the answer to an rpc: its value, or, if not `ok`, a sentence
    bye                           it ends, and takes nothing more
    got number                    all messages of the agent up to this one have come (so does the agent say of its own)
    again number                  the connection was lost, and this is the last message that has come; the agent sends
                                  all after it again, and says the same

From the agent:

    welcome info                  the answer to hello: {'nodes': number, 'session': uid, 'pilot': uid}
    tasks common uids sandboxes rests
                                  at most as many as asked for. Their descriptions, without what has its default, are
                                  packed: what they have in common, and the rest of each (`mesh.codec.pack_bulk`)
    cancel uids                   tasks in hand are to be cancelled; each still gets its result
    task_state uid state result   of a task that was submitted: AGENT_EXECUTING (None), or a final state with its
                                  result; of a worker that the application has submitted: AGENT_SCHEDULING
                                  ({'ranks': number}) when it is to be started, and its end
    rpc id cmd args kwargs        somebody asks the master to do something, and waits for the answer
    stop                          end: `stop()` of the master

A task has exactly one result. The one for a task of mode EXECUTABLE that was submitted again is sent by the master
after it was told the task's final state. What the agent submits to a master that ends meanwhile, it fails itself.

A worker is one process, whatever its `ranks`; it starts the ranks itself. Its environment has `RP_RANKS`, and in
`RP_RAPTOR_SLOTS` (JSON) where each rank belongs: `[{"node": name, "cores": [numbers], "gpus": [numbers]}...]`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rp_api import states
from rp_api.errors import CoordinationError
from rp_api.system import private
from rp_api.transport.keys import KeyPair, read_private
from rp_api.wire import form

ANY = '*'
"""As `raptor_id`: any master of the pilot."""

BULK = 1024
"""Most tasks in one message."""

MASTER_PROGRAM = 'radical-pilot-raptor-master'
WORKER_PROGRAM = 'radical-pilot-raptor-worker'

SLOTS = 'RP_RAPTOR_SLOTS'
"""The variable that tells a worker where its ranks belong."""

RPC = 'raptor.rpc'
"""The mode of a task that asks a master to do something: `method` (the command), `args` and `kwargs`."""

RESULT = ('exit_code', 'stdout', 'stderr', 'return_value', 'exception', 'exception_detail', 'target_state')
"""What a result may say; a target state that is not said is DONE if the exit code is 0 or absent, else FAILED."""

_LARGEST_FILE = 4096


@dataclass(frozen=True, slots=True)
class Access:
    """How to connect: an address, the public key that listens there, and the keys to come with (all CURVE keys z85)."""

    address: str
    server: str
    public: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        for name in ('address', 'server', 'public', 'secret'):
            if not isinstance(getattr(self, name), str):
                raise CoordinationError(f'{name} of an access is no text')

    @classmethod
    def read(cls, data: object) -> Access:
        """The access that `as_dict` made plain data of; CoordinationError if it is something else."""
        if not isinstance(data, Mapping) or set(data) != {'address', 'server', 'public', 'secret'}:
            raise CoordinationError('an access is a dict of address, server, public and secret')
        return cls(**data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Access:
        """The access in a file; CoordinationError if it is not ours alone, or holds something else."""
        try:
            return cls.read(json.loads(read_private(path, _LARGEST_FILE)))
        except ValueError as error:
            raise CoordinationError(f'refusing the key file {os.fspath(path)}: {error}') from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Put the access into a file that nobody else can read, in place of what was there; whole at any moment."""
        private.write_file(path, json.dumps(self.as_dict()).encode())

    def as_dict(self) -> dict[str, str]:
        """The access as plain data, with the secret."""
        return {'address': self.address, 'server': self.server, 'public': self.public, 'secret': self.secret}

    @property
    def keys(self) -> KeyPair:
        """The keys to come with."""
        return KeyPair(self.public.encode(), self.secret.encode())

    @property
    def server_key(self) -> bytes:
        """The public key of who listens."""
        return self.server.encode()


def link_file(pilot_sandbox: str, partition: str = '') -> str:
    """Where masters find how to connect to the agent, which may be that of a partition (`$RP_PARTITION_ID`)."""
    return os.path.join(pilot_sandbox, f'raptor.{partition}.json' if partition else 'raptor.json')


def master_file(pilot_sandbox: str, uid: str) -> str:
    """Where workers find how to connect to the master of that uid."""
    return os.path.join(pilot_sandbox, f'{uid}.raptor.json')


def beside(address: str) -> str | None:
    """The directory of the socket where somebody listens, which is removed with it; None if that is on a network."""
    return os.path.dirname(address.removeprefix('ipc://')) if address.startswith('ipc://') else None


def from_master(data: bytes) -> tuple[str, list[Any]]:
    """Operation and checked arguments of what a master has sent; CoordinationError if it must not be acted on."""
    return _parse(data, _FROM_MASTER, 'a master')


def from_agent(data: bytes) -> tuple[str, list[Any]]:
    """Operation and checked arguments of what the agent has sent; CoordinationError if it must not be acted on."""
    return _parse(data, _FROM_AGENT, 'the agent')


def target_state(result: Mapping[str, Any]) -> str:
    """The final state that a result stands for."""
    told = result.get('target_state')
    if told in states.FINAL:
        return str(told)
    return states.FAILED if result.get('exit_code') or result.get('exception') else states.DONE


def _parse(data: bytes, table: form.Table, sender: str) -> tuple[str, list[Any]]:
    operation, arguments = form.parse(data, table, sender)
    columns = arguments[_COLUMNS[operation]:] if operation in _COLUMNS else ()
    if len(set(map(len, columns))) > 1:
        raise CoordinationError(f'malformed message of {sender}: {operation!r} with columns of several lengths')
    return operation, arguments


def _have_uids(value: Any) -> bool:
    return type(value) is list and all(type(each) is dict and type(each.get('uid')) is str for each in value)


_FROM_MASTER: form.Table = {
    'hello': (form.is_text, form.is_number, form.is_dict), 'credit': (form.is_number,),
    'states': (form.is_text, form.are_texts), 'results': (form.are_texts, form.are_all(dict, bytes)),
    'submit': (_have_uids,), 'cancel': (form.are_texts,),
    'rpc_result': (form.is_number, form.is_a(bool), form.is_anything), 'bye': (), 'got': (form.is_number,),
    'again': (form.is_number,)}

_FROM_AGENT: form.Table = {
    'welcome': (form.is_dict,), 'tasks': (form.is_bytes, form.are_texts, form.are_texts, form.are_all(bytes)),
    'cancel': (form.are_texts,), 'task_state': (form.is_text, form.is_text, form.is_a(dict, type(None))),
    'rpc': (form.is_number, form.is_text, form.is_list, form.is_dict), 'stop': (), 'got': (form.is_number,),
    'again': (form.is_number,)}

_COLUMNS = {'tasks': 1, 'results': 0}
"""Where in a message the lists begin that have an entry for each task."""
