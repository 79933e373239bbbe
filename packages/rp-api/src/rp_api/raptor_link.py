"""The link between an agent and its RAPTOR masters, which run as tasks: names, messages, and connection files.

The agent listens (ROUTER), masters connect (DEALER). A message is a frame with its number (`rp_api.transport.resend`)
and one with a msgpack list `[operation, arguments...]`; `hello`, `got` and `again` have no number. The agent writes its
address to `link_file()` in the pilot's sandbox before it starts the first master; a master writes its own for its
workers to `master_file()`. Such a file holds an `Access`; only its owner can read it, and its writer removes it at the
end.
From a master:

    hello uid pid access          the master `uid` is up; applications connect to it with `access` (a dict)
    credit n                      it accepts n more tasks; the agent sends no tasks without credit
    ranks n                       its workers have n ranks, when that changes: 0 before the first worker
    states state uids             tasks have reached a state (AGENT_EXECUTING)
    results uids [result...]      tasks are done; the keys of a result are those of `RESULT`, all of them optional; the
                                  result of a DONE task may be packed, and is forwarded to the application unchanged
    returned uids                 tasks for any master that no rank has started, given back because of `give_back`; the
                                  credit for them has to be renewed
    submit [description...]       run these tasks, each with its `uid`: workers and executables; a task of the master
                                  is returned under its own uid, to be run as now described
    cancel uids                   cancel submitted tasks; each still gets its final state
    rpc_result id ok value        the answer to an rpc: its value, or an error text if `ok` is false
    waits text                    what it waits for: workers that may never come, with the reason; empty for nothing
    bye                           the master ends, and accepts no more messages
    got number                    acknowledges all messages of the agent up to this one (the agent sends the same)
    again number                  reconnected; this is the last message received, and the agent resends all later ones
                                  and sends its own `again`

From the agent:

    welcome info                  the answer to hello: {'nodes': number, 'session': uid, 'pilot': uid}
    tasks common uids sandboxes rests
                                  at most as many tasks as the credit allows. Their descriptions, without defaults, are
                                  packed: the common part, and the rest of each (`wire.codec.pack_bulk`)
    cancel uids                   cancel these tasks of the master; each still gets its result
    give_back n                   give back up to n tasks for any master that no rank has started; `returned` is the
                                  answer, also if there are none
    task_state uid state result   of a submitted task: AGENT_EXECUTING (None), or a final state with its
                                  result; of a worker that the application has submitted: AGENT_SCHEDULING
                                  ({'ranks': number}) when it is to be started, and its end; of a part of a worker
                                  that spans nodes: its end before that of the worker, with the `part` (as below) in
                                  the result
    rpc id cmd args kwargs        a remote procedure call, which the master answers with rpc_result
    stop reason                   end: `stop()` of the master

A task has exactly one result. For a task of mode EXECUTABLE that was submitted again, the master sends the result after
it has received the task's final state. The agent fails tasks that it submits to a master which ends meanwhile.

A worker is one process on each of its nodes, whatever its `ranks`: a manager, which starts the ranks there itself. Its
environment has the number of these ranks in `RP_RANKS`, and their placement in `RP_RAPTOR_SLOTS` (JSON):
`[{"node": name, "cores": [indices], "cpus": [numbers], "gpus": [names]}...]`; a rank binds itself to its CPUs, unless
the list is empty. `RP_RAPTOR_GPUS` is the name of the variable that makes GPUs visible. If the platform definition
names a shell for the commands of calls, it is in `RP_SHELL`.

If a worker spans nodes, each manager is a part of it, and has `RP_RAPTOR_PART` (JSON): `worker` is the uid of the
worker, `part` the number of the part, of which there are `parts`, `numbers` are those of its ranks among the `total`
ranks, and `files` is the directory of the files below. An MPI job spans all parts. Its ranks find the manager of their
node by `run_file`. The first part starts the job with the command in `job_file` (JSON): `argv`, the variables to `set`
and to `unset`, `notes`, the path of the file to which a rank adds a line with its number and exit code when it ends,
and the `signals` that end the command; or only `refused`, why there is none.

`RP_RAPTOR_TRANSPORT` tells all managers of such a worker how their messages travel between the nodes: `zmq` or `mpi`.
For `mpi`, the first part also starts the MPI job of the carriers, with the command in `carriers_file`, which has the
same form. It has one rank on each node, in the order of the parts. A carrier is started by the command of the manager,
with `RP_RAPTOR_CARRIER`, the path of the `carrier_file` of its node's manager, and is bound to the CPUs of the part.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rp_api import states
from rp_api.errors import CoordinationError
from rp_api.task_modes import MASTER_RPC
from rp_api.wire import form

ANY = '*'
"""The `raptor_id` that stands for any master of the pilot."""

BULK = 1024
"""Maximum number of tasks in one message."""

MASTER_PROGRAM = 'radical-pilot-raptor-master'
WORKER_PROGRAM = 'radical-pilot-raptor-worker'
PROGRAMS = {MASTER_PROGRAM: 'master', WORKER_PROGRAM: 'worker'}
"""The programs of rp-raptor, with their roles."""

SLOTS = 'RP_RAPTOR_SLOTS'
"""The environment variable with the placement of a worker's ranks."""

GPUS = 'RP_RAPTOR_GPUS'
"""The environment variable with the name of the variable that makes GPUs visible to a worker's ranks."""

PART = 'RP_RAPTOR_PART'
"""The environment variable of a manager that has only a part of a worker's ranks."""

RUN = 'RP_RAPTOR_RUN'
"""The environment variable of a rank with the path of its manager's run file."""

CARRIER = 'RP_RAPTOR_CARRIER'
"""The environment variable of a carrier with the path of the file by which it finds its manager."""

TRANSPORT = 'RP_RAPTOR_TRANSPORT'
"""The environment variable of a manager with the transport between its worker's nodes (see `constants`)."""

SHELL = 'RP_SHELL'
"""The environment variable with the shell of the platform definition, if it names one."""

RPC = MASTER_RPC
"""The mode of a task that calls a procedure of a master: `method` (the name), `args` and `kwargs`."""

RESULT = ('exit_code', 'stdout', 'stderr', 'return_value', 'exception', 'exception_detail', 'error', 'target_state')
"""The keys of a result. Without a target state, it is DONE if the exit code is 0 or absent, else FAILED."""


def link_file(pilot_sandbox: str, partition: str = '') -> str:
    """Return the path of the agent's connection file; `partition` is `$RP_PARTITION_ID`."""
    return os.path.join(pilot_sandbox, f'raptor.{partition}.json' if partition else 'raptor.json')


def master_file(pilot_sandbox: str, uid: str) -> str:
    """Return the path of a master's connection file for its workers."""
    return os.path.join(pilot_sandbox, f'{uid}.raptor.json')


def run_file(directory: str, worker: str, part: int) -> str:
    """Return the path of the file by which the ranks of an MPI job find the manager of their node."""
    return os.path.join(directory, f'{worker}.run.{part:04d}')


def job_file(directory: str, worker: str) -> str:
    """Return the path of the file with the command that starts the MPI job of a worker on several nodes."""
    return os.path.join(directory, f'{worker}.job.json')


def carrier_file(directory: str, worker: str, part: int) -> str:
    """Return the path of the file by which the carrier of a node finds the manager there."""
    return os.path.join(directory, f'{worker}.carrier.{part:04d}')


def carriers_file(directory: str, worker: str) -> str:
    """Return the path of the file with the command that starts the carriers of a worker on several nodes."""
    return os.path.join(directory, f'{worker}.carriers.json')


def beside(address: str) -> str | None:
    """Return the directory of a listener's Unix socket, which is removed with it; None for a network address."""
    return os.path.dirname(address.removeprefix('ipc://')) if address.startswith('ipc://') else None


def from_master(data: bytes) -> tuple[str, list[Any]]:
    """Return operation and arguments of a master's message; raise CoordinationError if it is malformed."""
    return _parse(data, _FROM_MASTER, 'a master')


def from_agent(data: bytes) -> tuple[str, list[Any]]:
    """Return operation and arguments of an agent's message; raise CoordinationError if it is malformed."""
    return _parse(data, _FROM_AGENT, 'the agent')


def target_state(result: Mapping[str, Any]) -> str:
    """Return the final state that results from a result."""
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
    'hello': (form.is_text, form.is_number, form.is_dict), 'credit': (form.is_number,), 'ranks': (form.is_number,),
    'returned': (form.are_texts,),
    'states': (form.is_text, form.are_texts), 'results': (form.are_texts, form.are_all(dict, bytes)),
    'submit': (_have_uids,), 'cancel': (form.are_texts,),
    'rpc_result': (form.is_number, form.is_a(bool), form.is_anything), 'waits': (form.is_text,), 'bye': (),
    'got': (form.is_number,), 'again': (form.is_number,)}

_FROM_AGENT: form.Table = {
    'welcome': (form.is_dict,), 'tasks': (form.is_bytes, form.are_texts, form.are_texts, form.are_all(bytes)),
    'cancel': (form.are_texts,), 'give_back': (form.is_number,),
    'task_state': (form.is_text, form.is_text, form.is_a(dict, type(None))),
    'rpc': (form.is_number, form.is_text, form.is_list, form.is_dict), 'stop': (form.is_text,),
    'got': (form.is_number,), 'again': (form.is_number,)}

_COLUMNS = {'tasks': 1, 'results': 0}
"""The index of the first column in a message with one entry per task."""
