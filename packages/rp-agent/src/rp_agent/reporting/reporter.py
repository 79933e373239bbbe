"""The reporter sends states and results of tasks to the coordinator: at once with few tasks, in bulks with many.

Updates that cannot be sent wait: the last state of a task that is still in the agent, and the results of others, in
memory and beyond a limit on disk.

An agent that is killed leaves what it knew in the same file, from which the client takes it: results on which the agent
acts before the coordinator has them, and all results while the coordinator does not answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any

from rp_agent.reporting.result_spool import ResultSpool
from rp_agent.reporting.updates import last_updates, running
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.coordination.contract import BULK, AgentConnection, Update
from rp_api.loop.event_loop import Loop
from rp_api.task_info.usage import RECORD
from rp_profiling.write.tracer import Tracer

DELAY_PER_TASK = 1e-4
"""Seconds that an update may be delayed for each task in the agent: a small part of the time that the tasks take."""

MAX_DELAY = 0.05
"""Longest delay of a result, in seconds."""

MAX_STATE_DELAY = 1.0
"""Longest delay of other states, in seconds. Only states that last so long are sent: with many tasks, most are not."""

MAX_WAITING_DELAY = 5.0
"""Longest delay, in seconds, of states in which tasks wait for execution; with many tasks, nearly all of them wait."""

MIN_DELAY = 1e-3
"""Resolution of the loop's timers in seconds; shorter delays are left out."""

ANSWER = 0.25
"""Seconds after which results that the coordinator has not acknowledged are written to disk, too."""

MOST_BYTES = 16 << 20
"""Bytes of unsent results that are kept in memory; more are written to disk."""

_PER_TASK, _PER_RANK, _PER_FILE, _PER_PACKED = 512, 640, 128, 256
"""Approximate size in bytes, without texts and packed data."""

_WAITING = frozenset(state for state in states.TASK.names
                     if states.TASK.value(state) < states.TASK.value(states.AGENT_EXECUTING_PENDING))
_LEFT = states.TASK.value(states.TMGR_STAGING_OUTPUT_PENDING)


def delay(tasks: int, most: float = MAX_DELAY) -> float:
    """Return the seconds that an update may be delayed when the agent has that many tasks."""
    seconds = DELAY_PER_TASK * tasks
    return 0.0 if seconds < MIN_DELAY else min(most, seconds)


class StateCoalescer:
    """The last state of each task by uid. A state has lasted when the task was in it for a whole round."""

    def __init__(self) -> None:
        self._last: list[AgentTask] = []    # the last bulk, which mostly comes again in another state,
        self._state = ''                 # and its state
        self._new: dict[str, str] = {}   # other states of this round
        self._old: dict[str, str] = {}   # states of earlier rounds, unless there is a new one

    def __bool__(self) -> bool:
        return bool(self._last or self._new or self._old)

    def add(self, tasks: Sequence[AgentTask], state: str) -> None:
        """Add a state that tasks have reached."""
        bulk = list(tasks)
        if bulk != self._last:
            self._store_last()
            self._last = bulk
        self._state = state

    def drop(self, tasks: Sequence[AgentTask]) -> None:
        """Discard the states of these tasks."""
        if self._last == tasks:
            self._last = []
        self.drop_uids([task.uid for task in tasks])

    def drop_uids(self, uids: Collection[str]) -> None:
        """Discard the states of the tasks with these uids."""
        self._store_last()
        for known in (self._new, self._old):
            if known:
                deque(map(known.pop, uids, repeat(None)), 0)

    def all(self) -> dict[str, str]:
        """Take all states."""
        self._store_last()
        found, self._new, self._old = {**self._old, **self._new}, {}, {}
        return found

    def of(self, uids: Iterable[str]) -> dict[str, str]:
        """Take the states of these tasks."""
        self._store_last()
        return {uid: known.pop(uid) for known in (self._old, self._new) for uid in uids if uid in known}

    def lasting(self, others: Collection[str]) -> dict[str, str]:
        """Take the states that have lasted, except `others`, and begin a new round."""
        self._store_last()
        found = {uid: state for uid, state in self._old.items() if state not in others and uid not in self._new}
        for uid in found:
            del self._old[uid]
        self._old.update(self._new)
        self._new = {}
        return found

    def _store_last(self) -> None:
        if self._last:
            self._new.update(dict.fromkeys([task.uid for task in self._last], self._state))
            self._last = []


class Reporter:
    """The unsent state changes and results of tasks; of several states of one task, only the last one is sent.

    `tracer` records each message, and with the detail `full` each update in it and its request. `tasks` are those in
    the agent, of which it is reported since when and where they run.
    """

    def __init__(self, loop: Loop, connection: AgentConnection, spool: ResultSpool,
                 tracer: Tracer | None = None, tasks: Mapping[str, AgentTask] = MappingProxyType({})) -> None:
        self._loop = loop
        self._connection = connection
        self._tasks = tasks
        self._spool = spool
        self.states = StateCoalescer()
        self._infos: dict[str, dict[str, Any]] = {}
        self._finished: list[Update] = []
        self._size, self._limit = 0, MOST_BYTES
        self._scheduled = False
        self._states_scheduled = False
        self._round_over = False   # whether states that have lasted for a round are due, and whether all are
        self._all_ripe = False
        self._rounds = 0           # rounds since states in which tasks wait were sent
        self._kept = False
        self._noted = False        # whether there are copies on disk of what is not sent yet
        self._spooled = False      # whether updates wait on disk
        self._unanswered: object = None   # the first message without an answer
        self._silent = False       # whether the coordinator has not answered for some time
        self.tasks = 0
        """Number of tasks in the agent."""
        self.waiting = 0
        """Number of further tasks that wait for others: these may be many, and still each result is sent at once."""
        self._tracer = tracer or Tracer(None, '')

    def changed(self, tasks: Sequence[AgentTask], state: str, info: dict[str, Any] | None = None) -> None:
        """Report a state that is not the last one in the agent; `info` holds attributes that became known with it."""
        if info is not None:
            self._infos.update((task.uid, {**self._infos.get(task.uid, {}), **info}) for task in tasks)
            self._schedule()   # the application waits for it
        if self._tracer.full_detail:
            self._tracer.record_bulk('update_request', [task.uid for task in tasks], msg=state)
        self.states.add(tasks, state)
        self._schedule_states()

    def returned(self, updates: Sequence[Update]) -> None:
        """Report tasks that run on other pilots; each update names this pilot."""
        self.states.drop_uids([update.uid for update in updates])
        if updates:
            self._finished += updates
            if self._silent:
                self._write_spool()
            self._schedule()

    def finished(self, tasks: Sequence[AgentTask], acted_upon: Collection[str] = ()) -> None:
        """Report the results of tasks that have left the agent, for output staging by the client or as final.

        The agent acts upon the results of `acted_upon` next, whether the coordinator has them or not.
        """
        self.states.drop(tasks)
        for task in tasks if self._infos else ():
            self._infos.pop(task.uid, None)
        updates = last_updates(tasks)
        self._trace_each('update_request', updates)
        self._finished += updates
        if acted_upon and not self._silent:
            self.note([update for update in updates if update.uid in acted_upon])
        self._size += sum(map(_size, tasks))
        if self._silent or (self._size > self._limit and not self._connection.room):
            self._write_spool()
        self._schedule()

    def note(self, updates: Sequence[Update]) -> None:
        """Write copies of updates to disk, which stay there until the coordinator has the updates."""
        self._spool.note(updates)
        self._noted = True

    def flush(self, *, sending: bool = True) -> None:
        """Send all updates now, with or without room in the connection; with `sending` False, write results to disk."""
        if not sending:
            self._write_spool()
            return
        while self._spooled:
            self._send_from_disk()
        self._all_ripe = True
        self._send_news()

    def keep(self, pilot: Update | None) -> None:
        """Write unacknowledged results and the final state of the pilot to disk, to stay there."""
        self._kept = True
        results = ([] if self._silent else self._in_flight()) + self._finished
        if results or pilot:
            self._spool.keep(results, pilot)

    def forget(self) -> None:
        """Remove the results on disk: the coordinator has acknowledged all of them."""
        self._kept = True
        self._spool.discard()

    def close(self) -> None:
        """Write unacknowledged results to disk, unless `keep` or `forget` was called."""
        if not self._kept:
            self.keep(None)
        self._spool.close()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(delay(self.tasks), self._due)

    def _due(self) -> None:
        self._scheduled = False
        self._all_ripe |= self._has_few()
        self._send()

    def _state_delay(self, most: float) -> float:
        return delay(self.tasks + self.waiting, most)

    def _schedule_states(self) -> None:
        if not self._states_scheduled:
            self._states_scheduled = True
            self._loop.call_later(self._state_delay(MAX_STATE_DELAY), self._states_due)

    def _states_due(self) -> None:
        self._states_scheduled = False
        self._all_ripe |= self._has_few()
        self._round_over = True
        self._rounds += 1
        self._send()
        if self.states:
            self._schedule_states()

    def _has_few(self) -> bool:
        """Return whether there are so few tasks that all states are sent with the next message."""
        return self._state_delay(MAX_STATE_DELAY) <= MAX_DELAY

    def on_room(self) -> None:
        """Send what is due, unless it is scheduled."""
        if not self._scheduled:
            self._send()

    def _send(self) -> None:
        """Send the oldest updates first while the connection has room; the others follow when it has room again."""
        while self._spooled and self._connection.room:
            self._send_from_disk()
        if self._connection.room:
            self._send_news()

    def _send_from_disk(self) -> None:
        updates = self._spool.take(BULK)
        if updates:
            self._push(updates)
        self._spooled = self._spool.waiting
        if not self._spooled:
            self._await_settled()

    def _await_settled(self) -> None:
        """Remove the file when the coordinator has acknowledged all that was taken from it."""
        self._connection.when_settled(partial(self._spool.accepted, self._spool.taken))

    def _send_news(self) -> None:
        updates = self._ripe() + self._finished
        if updates:
            self._finished, self._size, self._limit = [], 0, MOST_BYTES
            self._push(updates)
            if self._noted:
                self._noted = False
                self._await_settled()

    def _push(self, updates: list[Update]) -> None:
        self._connection.update_tasks(updates)
        self._tracer.record('update_pushed', msg=f'bulk size: {len(updates)}')
        self._trace_each('update_pushed', updates)
        if self._unanswered is None:
            self._unanswered = first = object()
            self._connection.when_settled(partial(self._answered, first))
            if self._unanswered is first:
                self._loop.call_later(ANSWER, partial(self._look_for_answer, first))

    def _answered(self, first: object) -> None:
        if self._unanswered is first:
            self._unanswered, self._silent = None, False

    def _look_for_answer(self, first: object) -> None:
        """Write all results to disk from now on, and copies of what was sent, if the coordinator has not answered."""
        if self._unanswered is first and not self._silent and self._spool.note(self._in_flight()):
            self._silent = True
            self._await_settled()
            self._write_spool()

    def _in_flight(self) -> list[Update]:
        """Return the sent updates without acknowledgement that must not get lost: results and attempts."""
        return [update for update in self._connection.unsettled() if states.TASK.value(update.state) >= _LEFT
                or (update.info and RECORD not in update.info)]

    def _trace_each(self, event: str, updates: Sequence[Update]) -> None:
        for update in updates if self._tracer.full_detail else ():
            self._tracer.record(event, update.uid, msg=update.state)

    def _ripe(self) -> list[Update]:
        """Take the states that are due."""
        if self._all_ripe:
            ripe = self.states.all()
            self._rounds = 0
        else:
            ripe = self.states.of(self._infos)
            if self._round_over:
                wait = self._rounds * self._state_delay(MAX_STATE_DELAY) < self._state_delay(MAX_WAITING_DELAY)
                self._rounds = self._rounds if wait else 0
                ripe |= self.states.lasting(_WAITING if wait else ())
        self._all_ripe = self._round_over = False
        return [Update(uid, state, self._infos.pop(uid, None) or (
            running(self._tasks.get(uid)) if state == states.AGENT_EXECUTING else None)) for uid, state in ripe.items()]

    def _write_spool(self) -> None:
        """Move the results in memory to disk."""
        if not self._finished or self._spool.put(self._finished):
            self._spooled = self._spool.waiting
            self._finished, self._size = [], 0
        else:
            self._limit = 2 * self._size   # do not try again with each task


def _size(task: AgentTask) -> int:
    """Return the approximate size of a task's result in bytes."""
    if task.packed is not None and not task.output_files:
        return _PER_PACKED + len(task.packed)
    return (_PER_TASK + len(task.stdout) + len(task.stderr) + len(task.packed or b'')
            + _PER_RANK * len(task.slots or ()) + _PER_FILE * len(task.output_files))
