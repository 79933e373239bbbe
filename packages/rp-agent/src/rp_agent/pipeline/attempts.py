"""Attempts of tasks: whether the output of a task is complete (`expect`), and whether a failed task runs again.

A task that has failed and may run again waits here for its next attempt. Its resources are free, and the application
sees it in AGENT_EXECUTING, with the failed attempts as `history` and the reason as `waits_for`. Files that an attempt
has written are moved to a directory beside the sandbox, so that they are not taken for those of the next attempt.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from rp_agent.components.isolation import unless
from rp_agent.components.killed import FAILURE_HOLD_S
from rp_agent.components.stage import Flow, Owner, Stage, Tasks
from rp_agent.pipeline.retry import STARTED, attempt_record, concerns_attempts, history_of, used
from rp_agent.pipeline.task_copies import TaskCopy
from rp_agent.task import EXITED, HISTORY, UNSTARTED, AgentTask, Description, differing
from rp_api import states
from rp_api.failures.kinds import OUTPUT, TIMEOUT
from rp_api.failures.losses import DEATH, LOST
from rp_api.failures.retry_rules import COMMAND, RetryRules, expected
from rp_api.loop.event_loop import Loop, Timer
from rp_api.loop.offload import Offload
from rp_api.reasons.kinds import ATTEMPT
from rp_api.reasons.wait import WAITS_FOR, wait
from rp_api.staging import trees
from rp_api.system.readable import end_of
from rp_profiling.write.tracer import Tracer

JITTER = 0.25
"""The share by which delays vary, so that tasks which have failed together do not start together."""

_EXECUTED = 'scheduler.executed'
"""Key in a task's `extra`: set once an attempt on this pilot has begun to execute."""

_EXECUTING = states.TASK.value(states.AGENT_EXECUTING)

CHECK_TIMEOUT = 60.0
"""Seconds that a command of `expect` may take."""

_SEARCHED_BYTES = 1 << 20
"""Bytes at the end of the standard error that are searched for patterns."""

_SHOWN_CHARS = 200
"""Characters of the output of a command that a message quotes."""

_CHECK = 'out=$(eval "$1" 2>&1); printf "%s\\n%s" "$?" "$out"'
"""A shell that tells the exit code of a command: the agent's executors may collect its process first."""


@dataclass(slots=True)
class _Pause:
    """A task between two attempts, or one whose last attempt is examined.

    In a pause, `timer` runs, and `since` is the time of its begin.
    """

    task: AgentTask
    timer: Timer | None = None
    since: float | None = None


class Attempts(Stage):
    """The tasks of a pipeline that may run again; `limits` is what a node has, by the attributes of descriptions."""

    order = 4

    def __init__(self, loop: Loop, offload: Offload, tracer: Tracer, limits: Mapping[str, float], flow: Flow,
                 owner: Owner) -> None:
        self._loop = loop
        self._tracer = tracer
        self._offload = offload
        self._limits = limits
        self._flow = flow
        self._owner = owner
        self._pauses: dict[str, _Pause] = {}
        self._stopped = False

    def __contains__(self, uid: object) -> bool:
        return uid in self._pauses

    @property
    def held_back(self) -> int:
        """Number of tasks that wait here."""
        return len(self._pauses)

    def visible(self, tasks: Sequence[AgentTask], state: str) -> list[AgentTask]:
        """Return the tasks whose new state is reported: those in which it is not one of a further attempt."""
        return [task for task in tasks if not concerns_attempts(task) or self._follow(task, state)]

    def _follow(self, task: AgentTask, state: str) -> bool:
        again = _EXECUTED in task.extra
        if state == states.AGENT_EXECUTING:
            task.extra[_EXECUTED] = True
            task.extra[STARTED] = time.time()
            if HISTORY in task.extra:
                self._owner.report_attempt(task, {WAITS_FOR: '', 'history': task.extra[HISTORY], **task.run_info()})
        if state == states.AGENT_STAGING_OUTPUT_PENDING:   # it may run again
            return False
        return not again or states.TASK.value(state) > _EXECUTING

    def entered(self, tasks: Tasks) -> Tasks:
        """Return new tasks whose attributes can be read; the others fail."""
        good, bad = [], []
        for task in tasks:
            try:
                if concerns_attempts(task):
                    RetryRules(task.description)
                    list(map(expected, task.description['expect']))
                good.append(task)
            except Exception as error:   # whatever a client has sent concerns this task alone
                task.broke(error, 'taking its retries')
                bad.append(task)
        if bad:
            self._flow.leave(bad)
        return good

    def concluded(self, tasks: Tasks) -> Tasks:
        """Return the tasks that are neither examined nor run again."""
        if not any(map(concerns_attempts, differing(tasks))):
            return tasks
        return unless(tasks, self._keeps, 'deciding on its next attempt')

    def _keeps(self, task: AgentTask) -> bool:
        """Return whether a task that has run stays here: to be examined, or for its next attempt."""
        if not concerns_attempts(task) or isinstance(task, TaskCopy):
            return False
        done = task.target_state == states.DONE
        rules = RetryRules(task.description)
        over = task.cancelled or self._stopped or (not done and used(task) >= rules.most)
        if over or (done and not task.description['expect']):
            return False
        if done or rules.reads_stderr:
            self._examine(task)
            return True
        if self._is_covered(task, rules, ''):
            self._pause(task, rules)
            return True
        return False

    def lost(self, task: AgentTask, record: dict[str, Any]) -> None:
        """Run a task again that a lost node has ended, for which it was checked that it may."""
        task.error = record
        self._pause(task, RetryRules(task.description), DEATH)

    def cancel(self, uids: Iterable[str], reason: str = 'cancelled before its next attempt') -> None:
        """End those of these tasks that wait here."""
        self._leave(uids, reason, self._flow.stage_output)

    def _leave(self, uids: Iterable[str], reason: str, leave: Callable[[list[AgentTask]], object]) -> None:
        pauses = [self._pauses.pop(uid) for uid in uids if uid in self._pauses]
        for pause in pauses:
            if pause.timer is not None:
                pause.timer.cancel()
            marks = {key: True for key in (EXITED, UNSTARTED) if key in pause.task.extra}
            pause.task.clear()
            pause.task.extra |= marks
            pause.task.cancel(reason)
        if pauses:
            leave([pause.task for pause in pauses])

    def stop(self, reason: str) -> None:
        """End all tasks that wait here, and start no further attempt.

        A failure that has just come may have been a sign of the end of the job: then it is no failed attempt.
        """
        self._stopped = True
        now = time.monotonic()
        for pause in self._pauses.values():
            if pause.since is None or now - pause.since < FAILURE_HOLD_S:
                pause.task.extra[EXITED] = True
                if pause.since is not None:
                    pause.task.extra[HISTORY] = history_of(pause.task)[:-1]
            else:
                pause.task.extra[UNSTARTED] = True
        self._leave(list(self._pauses), reason, self._flow.leave)

    # the last attempt

    def _examine(self, task: AgentTask) -> None:
        pause = self._pauses[task.uid] = _Pause(task)
        self._offload(partial(examine, task), partial(self._examined, pause),
                      partial(self._broke, pause))

    def _examined(self, pause: _Pause, found: tuple[str, str]) -> None:
        if self._pauses.pop(pause.task.uid, None) is None:   # cancelled
            return
        task, (missing, stderr) = pause.task, found
        if missing:
            task.fail_as(OUTPUT, missing)
        rules = RetryRules(task.description)
        if task.target_state != states.DONE and used(task) < rules.most and self._is_covered(task, rules, stderr):
            self._pause(task, rules)
        else:
            self._flow.stage_output([task])

    def _broke(self, pause: _Pause, error: BaseException) -> None:
        if self._pauses.pop(pause.task.uid, None) is not None:
            pause.task.broke(error, 'looking at its output')
            self._flow.stage_output([pause.task])

    @staticmethod
    def _is_covered(task: AgentTask, rules: RetryRules, stderr: str) -> bool:
        record = task.error or {}
        if task.target_state == states.CANCELED and record.get('kind') != TIMEOUT:
            return False
        return rules.covers(record, task.exit_code, lambda: stderr or str(task.stderr))

    # the next attempt

    def _pause(self, task: AgentTask, rules: RetryRules, lost: str = '') -> None:
        """Record a failed or lost attempt, and begin to wait for the next one."""
        number, failed = len(history_of(task)) + 1, used(task)
        where = attempt_directory(task, number)
        entry = attempt_record(task, where, lost)
        task.extra[HISTORY] = [*history_of(task), entry]
        seconds = 0.0
        if task.description['retries'] and not lost:
            seconds = rules.delay(failed) * random.uniform(1 - JITTER, 1 + JITTER)
        self._tracer.record('task_retry', task.uid, msg=f'{number} {entry["kind"]}')
        which = 'another attempt' if lost else f'attempt {failed + 1} of {rules.most}'
        text = f'{which}, after {seconds:.3g} s: {entry["reason"]}'
        self._owner.report_attempt(task, {WAITS_FOR: wait(ATTEMPT, text), 'history': task.extra[HISTORY],
                                          **task.run_info()})
        pause = self._pauses[task.uid] = _Pause(task)
        pause.since = time.monotonic()
        again = partial(self._again, pause)
        pause.timer = self._loop.call_later(seconds, self._offload, partial(put_aside, task, where),
                                            again, again)

    def _again(self, pause: _Pause, _: object) -> None:
        """Begin the next attempt; files that could not be moved are overwritten."""
        task = pause.task
        if self._pauses.pop(task.uid, None) is None:   # cancelled
            return
        try:
            lost = LOST in history_of(task)[-1]
            changes = {} if lost else RetryRules(task.description).changes(task.description, self._limits)
        except Exception as error:   # as when a text is to be doubled
            task.clear()
            task.broke(error, 'changing its description')
            self._flow.stage_output([task])
            return
        if changes:   # a copy, as calls share their descriptions
            task.description = Description({**task.description, **changes})
        task.clear()
        task.unplace()
        self._flow.attempt(task)


def examine(task: AgentTask) -> tuple[str, str]:
    """Return what a successful task lacks of the expected output, or the standard error of one that has failed."""
    if task.target_state == states.DONE:
        return next((text for each in task.description['expect'] if (text := _lacks(task, each))), ''), ''
    path = _path(task, task.description['stderr'] or f'{task.uid}.err')
    return '', end_of(path, _SEARCHED_BYTES).decode(errors='replace')


def attempt_directory(task: AgentTask, number: int) -> str:
    """Return the directory for the files of a failed attempt; empty if they are removed with the sandbox."""
    if task.description['cleanup']:
        return ''
    own = task.description['sandbox']   # which others may use, too
    return f'{task.sandbox}/{task.uid}.attempt{number}' if own else f'{task.sandbox}.attempt{number}'


def put_aside(task: AgentTask, where: str) -> None:
    """Move the files of a failed attempt to another directory; remove them if that is empty."""
    written = list(_written(task))
    if where and written:
        os.makedirs(where, exist_ok=True)
    for name in written:
        path = os.path.join(task.sandbox, name)
        with suppress(OSError):   # the task has removed it
            if where:
                os.rename(path, os.path.join(where, os.path.basename(name)))
            else:
                trees.remove(path)


def _written(task: AgentTask) -> Iterator[str]:
    """Yield the names of what the attempt has left in the sandbox, but for the profile, which all attempts share.

    In a sandbox that the description names, files of other tasks may be: only those count that are certainly its own.
    """
    description, uid = task.description, task.uid
    known = task.extra.get('before', ())
    own = description['sandbox']
    expected = {os.path.normpath(each) for each in description['expect'] if not each.startswith(COMMAND)}
    standard = {description['stdout'], description['stderr'], *expected}
    for name in os.listdir(task.sandbox):
        mine = not own or name in standard or (name.startswith(f'{uid}.') and not name.startswith(f'{uid}.attempt'))
        if mine and name not in known and name != f'{uid}.prof':
            yield name
    yield from (name for name in expected if '/' in name and not name.startswith(('/', '..')) and own)


def _lacks(task: AgentTask, expected: str) -> str:
    """Return what is wrong with an expected file or command; empty if nothing is."""
    if expected.startswith(COMMAND):
        return _check(task, expected.removeprefix(COMMAND).strip())
    path = _path(task, expected)
    try:
        found = os.stat(path)
    except OSError as error:
        return f'the expected file {path} cannot be found: {error.strerror}'
    return '' if found.st_size else f'the expected file {path} is empty'


def _check(task: AgentTask, command: str) -> str:
    environ = os.environ | {'RP_TASK_ID': task.uid, 'RP_TASK_SANDBOX': task.sandbox}
    try:
        process = subprocess.Popen(['/bin/sh', '-c', _CHECK, 'sh', command], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, cwd=task.sandbox, env=environ, start_new_session=True)
    except OSError as error:
        return f'the check `{command}` cannot be started: {error.strerror}'
    try:
        told = process.communicate(timeout=CHECK_TIMEOUT)[0].decode(errors='replace')
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f'the check `{command}` has taken longer than {CHECK_TIMEOUT:g} s'
    code, _, output = told.partition('\n')
    if code == '0':
        return ''
    said = f': {output.strip()[-_SHOWN_CHARS:]}' if output.strip() else ''
    return f'the check `{command}` has failed with exit code {code}{said}'


def _path(task: AgentTask, name: str) -> str:
    return os.path.join(task.sandbox, name)
