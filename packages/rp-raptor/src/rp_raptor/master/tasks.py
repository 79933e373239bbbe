"""Described tasks of a master, from their submission to the delivery of their results.

They come from the agent, from the master's own code (`submit_tasks`) and from ranks (`run_task`). Workers run Python
tasks, the agent runs executables. All tasks pass `request_cb` before they run, except those that a rank runs in the
middle of its own call, and all pass `result_cb` when they are done, if the master has these hooks: in the hooks'
thread. Everything else runs in the loop's thread.
"""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import count
from reprlib import repr as short
from typing import Any

from rp_api import states
from rp_api.batch import Batch
from rp_api.description.python_task import shown_call
from rp_api.description.task import TaskDescription
from rp_api.errors import DeserializationError
from rp_api.raptor_link import ANY, BULK, RESULT, target_state
from rp_api.values import from_plain, to_plain
from rp_api.wire import codec
from rp_raptor.errors import CallLost
from rp_raptor.master.passthrough import Agent, Passthrough, failure, result_of
from rp_raptor.master.router import CallRouter
from rp_raptor.wire.payload import encode_described, encode_error, encode_result
from rp_raptor.wire.requirements import is_for_agent, needs_of

Task = dict[str, Any]

_RESULTS = {'stdout': '', 'stderr': '', 'exit_code': None, 'return_value': None, 'exception': None,
            'exception_detail': None}
_FROM_AGENT = 'client'

_log = logging.getLogger('radical.pilot.raptor')


Filter = Callable[[list[Task]], Any]
Later = Callable[..., object]


class Tasks:
    """The tasks of a master that have no result yet.

    `request_cb` and `result_cb` are None if the master does not override them; `hook(function, *args)` calls a function
    in the hooks' thread, `soon(function, *args)` in the loop.
    """

    def __init__(self, router: CallRouter, agent: Agent, request_cb: Filter | None, result_cb: Filter | None,
                 hook: Later, soon: Later, changed: Callable[[], object]) -> None:
        self._router = router
        self._source = router.open(self)
        self._agent = agent
        self._request_cb = request_cb
        self._result_cb = result_cb
        self._hook = hook
        self._soon = soon
        self._changed = changed
        self._passthrough = Passthrough(router, agent, changed)   # tasks of the agent, if there are no hooks
        self._numbers = count()
        self._tasks: dict[str, Task] = {}     # all others
        self._places: dict[str, int] = {}     # numbers of tasks that the router has
        self._uids: dict[int, str] = {}       # their uids
        self._with_agent: set[str] = set()
        self._filtered: set[str] = set()      # tasks that request_cb is called with
        self._canceled: set[str] = set()      # those of them that are cancelled
        self._started: set[str] = set()
        self._answers: dict[str, Callable[[bytes], object]] = {}

    @property
    def in_hand(self) -> int:
        """The number of tasks that wait for workers, or run there."""
        return len(self._places) + len(self._filtered) + len(self._passthrough)

    def take(self, common: bytes, uids: Sequence[str], sandboxes: Sequence[str], rests: Sequence[bytes]) -> None:
        """Take tasks of the agent; see `rp_api.raptor_link`."""
        opened: Iterable[int] = range(len(uids))
        if self._request_cb is None and self._result_cb is None:
            opened = self._passthrough.take(common, uids, sandboxes, rests)
        batch = Batch(common, [(uids[each], rests[each]) for each in opened])
        tasks: list[Task] = [
            {'uid': uid, 'description': description, 'sandbox': sandboxes[each], 'origin': _FROM_AGENT}
            for each, (uid, description) in zip(opened, batch.tasks(), strict=True)]
        if tasks:
            self._take_new(tasks)

    def _take_new(self, tasks: list[Task]) -> None:
        self._tasks.update((task['uid'], task) for task in tasks)
        if self._request_cb is None:
            self.dispatch(tasks)
            return
        self._filtered.update(task['uid'] for task in tasks)
        for task in tasks:
            _complete(task)
        self._hook(self._filter, tasks)

    def submit(self, tasks: list[Task], answer: Callable[[bytes], object] | None = None) -> None:
        """Take tasks of this master, or tasks that `request_cb` has kept; `answer` takes a task's result."""
        new, kept = [], []
        for task in tasks:
            uid = task['uid']
            if uid in self._places or uid in self._with_agent or uid in self._passthrough:
                _log.error('%s has been submitted already', uid)
                if answer is not None:
                    answer(encode_error(ValueError(f'{uid} has been submitted already')))
                continue
            if uid in self._tasks:
                self._tasks[uid].update(task)
                kept.append(self._tasks[uid])
                continue
            self._tasks[uid] = task
            if answer is not None:
                self._answers[uid] = answer
            new.append(task)
        if kept:
            self._filtered.difference_update(task['uid'] for task in kept)
            self.dispatch(kept)
        if new:
            self._take_new(new)

    def ran(self, task: Task, payload: bytes, answer: Callable[[bytes], object]) -> None:
        """Take a task that a rank has run itself; `answer` takes its result."""
        uid = task['uid']
        if uid in self._tasks or uid in self._passthrough:
            answer(payload)
            return
        self._tasks[uid] = task
        self._answers[uid] = answer
        self._finish([self._with_result(uid, result_of(payload))])

    def dispatch(self, tasks: Sequence[Task]) -> None:
        """Send tasks to workers or to the agent."""
        ids, payloads, attributes, programs = array('Q'), [], {}, []
        odd: list[Task] = []
        for task in tasks:
            uid, description = task['uid'], task['description']
            if uid in self._canceled:
                self._canceled.discard(uid)
                self._finish([self._with_result(uid, {'target_state': states.CANCELED})])
                continue
            try:
                program, payload, requirements = _prepared(uid, description, task.get('sandbox', ''))
            except Exception as error:   # a hook may have changed a task at will
                odd.append(self._with_result(uid, failure(error)))
                continue
            if program is None:
                number = next(self._numbers)
                self._places[uid] = number
                self._uids[number] = uid
                ids.append(number)
                payloads.append(payload)
                if requirements:
                    attributes[number] = requirements
            else:
                self._with_agent.add(uid)
                programs.append(program)
        if odd:
            self._finish(odd)
        if ids:
            self._router.calls(self._source, ids, payloads, attributes or None)
        for first in range(0, len(programs), BULK):
            self._agent.send('submit', programs[first:first + BULK])
        self._changed()

    def cancel(self, uids: Sequence[str]) -> None:
        """Cancel those of the tasks that have no result yet."""
        found = [self._places[uid] for uid in uids if uid in self._places]
        programs = [uid for uid in uids if uid in self._with_agent]
        self._canceled.update(uid for uid in uids if uid in self._filtered)
        kept = [uid for uid in uids if uid in self._tasks and uid not in self._places
                and uid not in self._with_agent and uid not in self._filtered]
        self._passthrough.cancel(uids)
        if found:
            self._router.cancel(self._source, found)
        if programs:
            self._agent.send('cancel', programs)
        if kept:
            self._finish([self._with_result(uid, {'target_state': states.CANCELED}) for uid in kept])

    def give_back(self, count: int) -> None:
        """Return up to `count` tasks for any master to the agent that no rank has started and no hook has seen."""
        self._passthrough.give_back(count)

    def agent_state(self, uid: str, state: str, result: dict[str, Any] | None) -> None:
        """Take the state of a task that the agent runs."""
        if state in states.FINAL and uid in self._with_agent:
            self._with_agent.discard(uid)
            self._finish([self._with_result(uid, {**(result or {}), 'target_state': state})])

    def close(self, reason: str) -> None:
        """Fail the tasks that ranks wait for: no result can arrive any more."""
        self._router.close(self._source)   # the agent decides what happens to its tasks
        self._passthrough.close()
        payload = encode_error(CallLost(reason))
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer(payload)

    # called by the router

    def started(self, ids: Sequence[int]) -> None:
        """Report tasks as running."""
        uids = [uid for number in ids if (uid := self._uids[number]) not in self._started
                and self._tasks[uid]['origin'] == _FROM_AGENT]
        if uids:
            self._started.update(uids)
            self._agent.send('states', states.AGENT_EXECUTING, uids)

    def results(self, ids: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Take the results of tasks."""
        done = []
        for number, payload in zip(ids, payloads, strict=True):
            uid = self._uids.pop(number)
            del self._places[uid]
            done.append(self._with_result(uid, result_of(payload)))
        self._finish(done)
        self._changed()

    # results

    def _with_result(self, uid: str, result: dict[str, Any]) -> Task:
        task = self._tasks.pop(uid)
        self._started.discard(uid)
        state = target_state(result)
        task.update(_RESULTS)
        task.update(result)
        task.update(state=states.AGENT_EXECUTING, target_state=state)
        return task

    def _finish(self, tasks: list[Task]) -> None:
        if self._result_cb is None:
            self._conclude(tasks)
        else:
            for task in tasks:
                _complete(task)
            self._hook(self._show, tasks)

    def _conclude(self, tasks: list[Task]) -> None:
        """Deliver results to the ranks and the agent."""
        uids, results = [], []
        for task in tasks:
            answer = self._answers.pop(task['uid'], None)
            if answer is not None:
                answer(_answer(task))
            if task['origin'] == _FROM_AGENT:
                uids.append(task['uid'])
                results.append(self._told(task))
        if uids:
            self._agent.results(uids, results)

    def _told(self, task: Task) -> dict[str, Any]:
        """Return a result for the agent; `result_cb` may have put anything into it."""
        found = {name: value for name in RESULT if (value := task.get(name)) is not None}
        if self._result_cb is not None:
            try:
                codec.pack(found)
            except Exception as error:
                return failure(error)
        return found

    # in the hooks' thread

    def _filter(self, tasks: list[Task]) -> None:
        assert self._request_cb is not None
        try:
            passed = _tasks(list(self._request_cb(tasks) or ()))
        except Exception as error:
            _log.exception('request_cb has failed')
            self._soon(self._refuse, tasks, error)
        else:
            self._soon(self._pass, [task['uid'] for task in tasks], passed)

    def _show(self, tasks: list[Task]) -> None:
        assert self._result_cb is not None
        try:
            with restored(tasks):
                self._result_cb(tasks)
        finally:
            self._soon(self._conclude, tasks)

    # in the loop

    def _pass(self, uids: list[str], tasks: list[Task]) -> None:
        """Run the tasks that `request_cb` has returned; it may submit the others later."""
        self._filtered.difference_update(uids)
        fresh = [task for task in tasks if task['uid'] in self._tasks and task['uid'] not in self._places
                 and task['uid'] not in self._with_agent]
        self._tasks.update((task['uid'], task) for task in fresh)
        self.dispatch(fresh)

    def _refuse(self, tasks: list[Task], error: Exception) -> None:
        for task in tasks:
            self._filtered.discard(task['uid'])
            self._canceled.discard(task['uid'])
        self._finish([self._with_result(task['uid'], {
            'exception': repr(error), 'exception_detail': f'request_cb of the master has raised {error!r}',
            'target_state': states.FAILED}) for task in tasks if task['uid'] in self._tasks])
        self._changed()


def _prepared(uid: str, description: dict[str, Any], sandbox: str) -> tuple[Task | None, bytes, dict[str, Any]]:
    """Return a program for the agent, or the payload of a call and its attributes; raise if the task is not valid."""
    if is_for_agent(description):
        program = {**description, 'uid': uid, 'raptor_id': ''}
        codec.pack(program)
        return program, b'', {}
    call = encode_described({'uid': uid, 'description': description, 'sandbox': sandbox})
    return None, call, needs_of(description)


def _answer(task: Task) -> bytes:
    """Return the result of a task for the rank that waits for it."""
    try:
        return encode_result({**task, 'state': task['target_state']})
    except Exception as error:   # `result_cb` may have put anything into it
        return encode_error(error)


def _tasks(passed: list[Any]) -> list[Task]:
    """Return the tasks that `request_cb` has returned; TypeError if they are not tasks."""
    for task in passed:
        if not isinstance(task, dict) or not isinstance(task.get('uid'), str) or not isinstance(
                task.get('description'), dict):
            raise TypeError(f'it has returned {short(task)}, which is not a task')
    return passed


def described(uid: str, description: Any, sandbox: str, origin: str) -> Task:
    """Return a task of a master's own, from a description or from a task dict as hooks get them."""
    if isinstance(description, dict) and isinstance(description.get('description'), dict):
        return {**description, 'uid': description.get('uid') or uid, 'origin': description.get('origin', origin)}
    checked = TaskDescription(description)
    checked.uid = checked.uid or uid
    checked.raptor_id = checked.raptor_id or ANY   # allows the modes that the master's workers define
    checked.check()
    task: Task = {'uid': checked.uid, 'description': codec.unpack(codec.pack(checked.as_dict())), 'origin': origin}
    task['sandbox'] = task['description'].get('sandbox') or f'{sandbox}/{checked.uid}'
    return task


_DEFAULTS: dict[str, Any] = {}


def _complete(task: Task) -> None:
    """Fill in all attributes that hooks expect: of the description, the uid, and a state."""
    if not _DEFAULTS:
        _DEFAULTS.update(TaskDescription().as_dict())
    description = task['description'] = shown_call(task['description'])
    for name, value in _DEFAULTS.items():
        if name not in description:
            description[name] = value.copy() if isinstance(value, list | dict) else value
    description['uid'] = task['uid']
    task.setdefault('state', states.AGENT_SCHEDULING)


@contextmanager
def restored(tasks: Sequence[dict[str, Any]]) -> Generator[None, None, None]:
    """Replace the return values of tasks by objects within the context, and by plain data at its end.

    Values of programs that the agent runs are not unpickled: programs return no objects.
    """
    before = [(task, task.get('return_value')) for task in tasks]
    shown = []
    for task, plain in before:
        try:
            task['return_value'] = plain if is_for_agent(task['description']) else from_plain(plain)
        except DeserializationError:   # the application may be able to restore it, or gets the error
            task['return_value'] = plain
        shown.append(task['return_value'])
    try:
        yield
    finally:
        for (task, plain), value in zip(before, shown, strict=True):
            now = task.get('return_value')
            task['return_value'] = plain if now is value else to_plain(
                now, os.environ.get('RP_PILOT_SANDBOX', ''), task['uid'])
