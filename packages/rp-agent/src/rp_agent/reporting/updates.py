"""The updates of tasks that an agent sends: the last one of a task in its wire form, and that of a running task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rp_agent.logs import LOG
from rp_agent.task import HISTORY, AgentTask
from rp_api import states
from rp_api.coordination.contract import PackedInfo, Update
from rp_api.errors import sentence
from rp_api.logger import logger
from rp_api.staging.location import acts_on_client
from rp_api.task_info.slots import SLOTS, with_short_slots
from rp_api.wire import codec

SLOTS_SHOWN = 32
"""Slots at most that are reported while a task runs; those of larger ones are reported with its result."""

_new = tuple.__new__   # makes a named tuple in half the time of a call of its class, which counts for many tasks


def running(task: AgentTask | None) -> Mapping[str, Any] | None:
    """Return the information on a task that executes: since when, and where; None if it has none or another one."""
    if task is None or HISTORY in task.extra:   # earlier attempts were reported, and would be replaced
        return None
    info: Mapping[str, Any] = task.run_info()
    if task.slots and len(task.slots) <= SLOTS_SHOWN:
        info = with_short_slots({**info, SLOTS: task.slots})
    return info


def last_updates(tasks: Sequence[AgentTask]) -> list[Update]:
    """Return the last update of each task in its wire form."""
    updates = []
    before, client_has_work, info = None, False, PackedInfo(b'')
    for task in tasks:
        if task.packed is None:
            updates.append(packed(task))
            continue
        if task.description is not before:   # RAPTOR's calls share theirs
            before, client_has_work = task.description, _client_has_work(task)
        if (client_has_work or task.output_files or task.target_state != states.DONE
                or task.state != states.TMGR_STAGING_OUTPUT_PENDING):
            updates.append(packed(task))   # its packed result is not all that there is to report
            continue
        if task.packed != info.packed:   # most are like the one before
            info = PackedInfo(task.packed)
        updates.append(_new(Update, (task.uid, states.DONE, info)))
    return updates


def packed(task: AgentTask) -> Update:
    """Return the last update of a task in its wire form; FAILED with the reason if its result cannot be packed."""
    update = _end(task)
    if update.info is None or type(update.info) is PackedInfo:
        return update
    try:
        return update._replace(info=PackedInfo(codec.pack(with_short_slots(update.info))))
    except Exception as error:
        logger(LOG).error('the result of %s cannot be sent', task.uid, exc_info=error)
        state = states.FAILED if update.state == states.DONE else update.state
        return Update(task.uid, state, {
            'exception': sentence(error), 'exception_detail': 'the result of the task cannot be sent',
            'target_state': states.FAILED, 'reached': task.state})


def _end(task: AgentTask) -> Update:
    """Return the last state that the agent reports, with the results."""
    assert task.target_state is not None, f'{task.uid} has left without a final state'
    if task.state != states.TMGR_STAGING_OUTPUT_PENDING:
        return Update(task.uid, task.target_state, {**task.result(), 'reached': task.state})
    if task.target_state == states.DONE and not _client_has_work(task):
        return Update(task.uid, states.DONE, task.result())
    return Update(task.uid, task.state, {**task.result(), 'target_state': task.target_state})


def _client_has_work(task: AgentTask) -> bool:
    """Return whether the client has to stage output of the task; if not, the agent reports the final state."""
    directives = dict.get(task.description, 'output_staging')   # most have none
    return any(acts_on_client(directive['action']) for directive in directives) if directives else False
