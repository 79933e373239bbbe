"""How an agent tells the client about its tasks: soon when there is little to tell, in bulks when there is much.

What cannot be sent waits: of tasks that are still here, the last state; of others, the results, in memory and beyond a
limit on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from rp_agent.logs import LOG
from rp_agent.reporting.result_spool import ResultSpool
from rp_agent.reporting.state_coalescer import StateCoalescer
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.contract import BULK, AgentConnection, PackedInfo, Update
from rp_api.errors import sentence
from rp_api.logger import logger
from rp_api.loop.event_loop import Loop
from rp_api.staging.location import acts_on_client
from rp_api.wire import codec

DELAY_PER_TASK = 1e-4
"""Seconds that news may wait for others, for each task that the agent has: it stays a small part of the time that the
tasks take, and the cost of what is done in bulks is shared by many of them."""

MAX_DELAY = 0.05

MAX_STATE_DELAY = 1.0
"""The same for states that are not the last ones here, of which those are told that last so long: most need not be told
at all then, as the task has gone on."""

MAX_WAITING_DELAY = 5.0
"""The same for those in which tasks wait to be executed: of many tasks nearly all do, and that says little of each."""

MIN_DELAY = 1e-3
"""The loop's timers are no finer than this; what would have to wait for less is done at once."""

MOST_BYTES = 16 << 20
"""Size of the results that wait in memory while they cannot be sent; what is more goes to disk."""

_PER_TASK, _PER_RANK, _PER_FILE = 512, 640, 128
_PER_PACKED = 256
"""Bytes, roughly, as measured; texts and what is packed come on top."""

_WAITING = frozenset(state for state in states.TASK.names
                     if states.TASK.value(state) < states.TASK.value(states.AGENT_EXECUTING_PENDING))
_UID = attrgetter('uid')
_LEFT = states.TASK.value(states.TMGR_STAGING_OUTPUT_PENDING)


def delay(tasks: int, most: float = MAX_DELAY) -> float:
    """Seconds that news may wait when the agent has that many tasks."""
    seconds = DELAY_PER_TASK * tasks
    return 0.0 if seconds < MIN_DELAY else min(most, seconds)


class Reporter:
    """Collects state changes; of several states of one task, only the last one is sent.

    `pushed(count)` is told how many updates have been sent.
    """

    def __init__(self, loop: Loop, connection: AgentConnection, spool: ResultSpool,
                 pushed: Callable[[int], object] = lambda count: None) -> None:
        self._loop = loop
        self._connection = connection
        self._spool = spool
        self._states = StateCoalescer()
        self._infos: dict[str, dict[str, Any]] = {}
        self._finished: list[Update] = []
        self._size = 0
        self._limit = MOST_BYTES
        self._scheduled = False
        self._states_scheduled = False
        self._round_over = False   # whether states are to be told that have lasted for a round
        self._all_ripe = False     # whether all are
        self._rounds = 0           # in which those were not told in which tasks wait
        self._kept = False
        self.tasks = 0
        """Number of tasks that the agent has in hand."""
        self._pushed = pushed
        connection.on_room = self._on_room

    def changed(self, tasks: Sequence[AgentTask], state: str, info: dict[str, Any] | None = None) -> None:
        """Tasks have reached a state that is not their last one here; `info` is what became known with it."""
        if info is not None:
            self._infos.update((task.uid, info) for task in tasks)
            self._schedule()   # somebody waits for that
        self._states.add(map(_UID, tasks), state)
        self._schedule_states()

    def drop(self, tasks: Sequence[AgentTask]) -> None:
        """Tell no state of these tasks that was not told yet."""
        self._states.drop([task.uid for task in tasks])

    def finished(self, tasks: Sequence[AgentTask]) -> None:
        """Tasks have left the agent, for output staging by the client or for good."""
        self.drop(tasks)
        for task in tasks if self._infos else ():
            self._infos.pop(task.uid, None)
        self._finished += [packed(task) for task in tasks]
        self._size += sum([_size(task) for task in tasks])
        if self._size > self._limit and not self._connection.room:
            self._write_spool()
        self._schedule()

    def flush(self, *, sending: bool = True) -> None:
        """Send what there is now, whether there is room or not; `sending` False: write results to disk."""
        if not sending:
            self._write_spool()
            return
        while self._spool.waiting:
            self._send_from_disk()
        self._all_ripe = True
        self._send_news()

    def keep(self, pilot: Update | None) -> None:
        """Leave on disk the results that the coordinator does not have, with the last state of the pilot."""
        self._kept = True
        sent = [update for update in self._connection.unsettled() if states.TASK.value(update.state) >= _LEFT]
        if sent or self._finished or pilot:
            self._spool.keep(sent + self._finished, pilot)

    def forget(self) -> None:
        """The coordinator has everything: leave nothing on disk."""
        self._kept = True
        self._spool.discard()

    def close(self) -> None:
        """Leave on disk the results that the coordinator does not have, if that was not done yet."""
        if not self._kept:
            self.keep(None)
        self._spool.close()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(delay(self.tasks), self._due)

    def _due(self) -> None:
        self._scheduled = False
        self._all_ripe |= self._has_few
        self._send()

    def _schedule_states(self) -> None:
        if not self._states_scheduled:
            self._states_scheduled = True
            self._loop.call_later(delay(self.tasks, MAX_STATE_DELAY), self._states_due)

    def _states_due(self) -> None:
        self._states_scheduled = False
        self._all_ripe |= self._has_few
        self._round_over = True
        self._rounds += 1
        self._send()
        if self._states:
            self._schedule_states()

    @property
    def _has_few(self) -> bool:
        """Whether there is so little to tell that one message is for all of it."""
        return delay(self.tasks, MAX_STATE_DELAY) <= MAX_DELAY

    def _on_room(self) -> None:
        if not self._scheduled:
            self._send()

    def _send(self) -> None:
        """Send while there is room, what has waited longest first; what cannot be sent now is sent when there is."""
        while self._spool.waiting and self._connection.room:
            self._send_from_disk()
        if self._connection.room:
            self._send_news()

    def _send_from_disk(self) -> None:
        updates = self._spool.take(BULK)
        if updates:
            self._push(updates)
        if not self._spool.waiting:
            self._connection.when_settled(partial(self._spool.accepted, self._spool.taken))

    def _send_news(self) -> None:
        updates = self._ripe() + self._finished
        if updates:
            self._finished = []
            self._size = 0
            self._limit = MOST_BYTES
            self._push(updates)

    def _push(self, updates: list[Update]) -> None:
        self._connection.update_tasks(updates)
        self._pushed(len(updates))

    def _ripe(self) -> list[Update]:
        """The states that are to be told now."""
        if self._all_ripe:
            ripe = self._states.all()
            self._rounds = 0
        else:
            ripe = self._states.of(self._infos)
            if self._round_over:
                ripe |= self._states.lasting(self._told_later())
        self._all_ripe = self._round_over = False
        return [Update(uid, state, self._infos.pop(uid, None)) for uid, state in ripe.items()]

    def _told_later(self) -> Collection[str]:
        """The states that are not told in this round even if they have lasted."""
        if self._rounds * delay(self.tasks, MAX_STATE_DELAY) < delay(self.tasks, MAX_WAITING_DELAY):
            return _WAITING
        self._rounds = 0
        return ()

    def _write_spool(self) -> None:
        """Make room in memory."""
        if not self._finished or self._spool.put(self._finished):
            self._finished = []
            self._size = 0
        else:
            self._limit = 2 * self._size   # not with each task again


def _size(task: AgentTask) -> int:
    """Bytes, roughly, that the result of a task takes."""
    if task.packed is not None and not task.output_files:
        return _PER_PACKED + len(task.packed)
    return (_PER_TASK + len(task.stdout) + len(task.stderr) + len(task.packed or b'')
            + _PER_RANK * len(task.slots or ()) + _PER_FILE * len(task.output_files))


def packed(task: AgentTask) -> Update:
    """The last state that the agent reports, as it travels; of a result that cannot travel, the reason."""
    update = _end(task)
    if update.info is None or type(update.info) is PackedInfo:
        return update
    try:
        return update._replace(info=PackedInfo(codec.pack(update.info)))
    except Exception as error:
        logger(LOG).error('the result of %s cannot be sent', task.uid, exc_info=error)
        state = states.FAILED if update.state == states.DONE else update.state
        return Update(task.uid, state, {
            'exception': sentence(error), 'exception_detail': 'the result of the task cannot be sent',
            'target_state': states.FAILED, 'reached': task.state})


def _end(task: AgentTask) -> Update:
    """The last state that the agent reports, with the results."""
    if task.state == states.TMGR_STAGING_OUTPUT_PENDING:
        if task.target_state == states.DONE and not _client_has_work(task):
            if task.packed is not None and not task.output_files:
                return Update(task.uid, states.DONE, PackedInfo(task.packed))
            return Update(task.uid, states.DONE, task.result())
        info = task.result()
        info['target_state'] = task.target_state
        return Update(task.uid, task.state, info)
    assert task.target_state is not None, f'{task.uid} has left without a final state'
    info = task.result()
    info['reached'] = task.state
    return Update(task.uid, task.target_state, info)


def _client_has_work(task: AgentTask) -> bool:
    """Whether the client has to stage output of the task; if not, nobody needs to ask it for the last word."""
    directives = dict.get(task.description, 'output_staging')   # most have none
    return any(acts_on_client(directive['action']) for directive in directives) if directives else False
