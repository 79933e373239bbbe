"""Tasks that masters submit to the agent: their own workers and executables, and tasks that they return for execution.

The application does not know the tasks that a master submits itself, and receives no reports of them. A returned task
still belongs to its master after the execution: the result that the master sends counts.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rp_agent.executor.launching.outcome import of_codes
from rp_agent.raptor.master import Master
from rp_agent.stager.output import OUTPUTS_KNOWN, TAIL, tail
from rp_agent.task import PART, AgentTask, Description
from rp_api import constants as c
from rp_api import distributions, states
from rp_api.constants import RAPTOR_WORKER
from rp_api.description.container import BINDS, merged
from rp_api.description.task import AFTER, TaskDescription
from rp_api.errors import DescriptionError, sentence
from rp_api.failures.kinds import CANCELED, EXCEPTION, KINDS
from rp_api.raptor_defaults import NAMED_ENV, complete
from rp_api.raptor_link import PROGRAMS, target_state
from rp_api.staging.directive import expand
from rp_api.system.shell_text import escaped

_TOLD = 'raptor.told'


class Submissions:
    """The tasks that masters have submitted and that have not ended."""

    def __init__(self, ports: RaptorPorts) -> None:
        self._ports = ports
        self.running: dict[str, Master] = {}
        """The masters of returned tasks that have not been executed yet, by uid of the task."""
        self.own: dict[str, Master] = {}
        """The masters of tasks that the application does not know, by uid of the task."""

    def take(self, master: Master, descriptions: list[dict[str, Any]], sandbox: str) -> list[AgentTask]:
        """Take the tasks that a master in `sandbox` submits; return those that it has returned for execution."""
        back, new = [], []
        for data in descriptions:
            uid = data['uid']
            try:
                description = submitted(data, master.uid)
            except Exception as error:   # concerns this task alone
                self._refuse(master, uid, sentence(error))
                continue
            if uid in master.held and uid not in self.running:
                back.append(self._back(master, uid, description))
            elif (task := self._new(master, uid, description, sandbox)) is not None:
                new.append(task)
            else:
                self._refuse(master, uid, f'{uid} is the uid of another task')
        if new:
            self._ports.enter(new)
        return back

    def of(self, master: Master, uids: list[str]) -> list[AgentTask]:
        """Return those of the tasks that the agent has for a master."""
        own = [master.own[uid] for uid in uids if uid in master.own]
        return own + [master.held[uid] for uid in uids if uid in master.held and uid in self.running]

    def visible(self, tasks: Sequence[AgentTask], state: str) -> Sequence[AgentTask]:
        """Return the tasks whose new state is reported to the application; report the others to their masters."""
        shown = []
        for task in tasks:
            master = self.own.get(task.uid)
            if master is None:
                shown.append(task)
            elif state == states.AGENT_EXECUTING:
                self._tell(master, task.uid, state, None)
        return shown

    def worker_begins(self, master: Master, task: AgentTask) -> None:
        """Report to a master that a worker is about to start which the application has submitted for it."""
        if task.uid not in self.own:
            self._tell(master, task.uid, states.AGENT_SCHEDULING, {'ranks': task.description['ranks']})

    def worker_ended(self, master: Master, task: AgentTask) -> None:
        """Report to a master the end of a worker that the application has submitted for it."""
        if task.uid not in self.own:
            self._tell(master, task.uid, task.target_state or states.FAILED, result_of(task))

    def part_ended(self, master: Master, part: AgentTask) -> None:
        """Report to a master the end of a part of a worker."""
        self._tell(master, part.uid, part.target_state or states.FAILED, {**result_of(part), 'part': part.extra[PART]})

    def executed(self, task: AgentTask) -> bool:
        """Report the execution of a returned task to its master; return whether it waits for the master's result."""
        master = self.running.pop(task.uid, None)
        if master is None or task.uid not in master.held or master.ended:
            return False
        task.extra[_TOLD] = result = result_of(task)
        self._tell(master, task.uid, task.target_state or states.FAILED, result)
        task.target_state = None   # so far
        return True

    def left(self, task: AgentTask) -> bool:
        """Report the end of a task to the master that submitted it; return False if no master did."""
        master = self.own.pop(task.uid, None)
        if master is None:
            return False
        del master.own[task.uid]
        self._tell(master, task.uid, task.target_state or states.FAILED, result_of(task))
        return True

    def _back(self, master: Master, uid: str, description: dict[str, Any]) -> AgentTask:
        task = master.held[uid]
        task.description = Description(description)
        self.running[uid] = master
        return task

    def _new(self, master: Master, uid: str, description: dict[str, Any], sandbox: str) -> AgentTask | None:
        """Return a new task of the master; None if there is one of that uid."""
        if description.get('mode') == RAPTOR_WORKER:
            description['sandbox'] = description.get('sandbox') or sandbox
        else:
            description.pop('raptor_id', None)
        task = None if uid in self.own else self._ports.make(uid, description)
        if task is not None:
            self.own[uid] = master
            master.own[uid] = task
        return task

    def _refuse(self, master: Master, uid: str, why: str) -> None:
        self._tell(master, uid, states.FAILED, {'target_state': states.FAILED, 'exception': why})

    def _tell(self, master: Master, uid: str, state: str, result: dict[str, Any] | None) -> None:
        if master.address and not master.ended:
            self._ports.send(master.address, 'task_state', uid, state, result)


def with_told(task: AgentTask, result: dict[str, Any] | bytes) -> dict[str, Any] | bytes:
    """Return the result that a master sends, completed by the result of the execution that the agent sent to it."""
    told: dict[str, Any] = task.extra.pop(_TOLD, {})
    return {**told, **result} if isinstance(result, dict) else result


class RaptorPorts(Protocol):
    """The link to masters and the pipeline, as the RAPTOR component uses them."""

    environment: Mapping[str, str]
    """Variables of the agent's environment that differ from, or are missing in, that of tasks."""

    def send(self, master: bytes, *message: Any) -> None:
        """Send a message to a master; raise ValueError if it is too large."""

    def forget(self, master: bytes) -> None:
        """Discard the unacknowledged messages for a master that has ended."""

    def refuse(self, why: object) -> None:
        """Count a dropped message."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> object:
        """Call back after `delay` seconds."""

    def make(self, uid: str, description: dict[str, Any]) -> AgentTask | None:
        """Return a new task of this pilot; None if there is one of that uid."""

    def enter(self, tasks: list[AgentTask]) -> None:
        """Put tasks into the pipeline."""

    def stage_output(self, tasks: list[AgentTask]) -> None:
        """Pass executed tasks to output staging."""

    def leave(self, tasks: list[AgentTask]) -> None:
        """Take tasks out of the pipeline that end without output staging."""

    def cancel(self, tasks: Sequence[AgentTask]) -> None:
        """Cancel tasks in any component."""

    def master_is_up(self, task: AgentTask, access: dict[str, str]) -> None:
        """Report that a master is up."""

    def waits(self, tasks: Sequence[AgentTask], text: str, state: str) -> None:
        """Report what tasks in that state wait for; nothing if the text is empty."""

    def remove_leftovers(self, master: str, address: str) -> None:
        """Remove the files of a master that listened at that address."""


_EXECUTING = states.TASK.value(states.AGENT_EXECUTING)


def apply(task: AgentTask, result: Mapping[str, Any] | bytes) -> None:
    """Apply the result that a master sends to a task."""
    if isinstance(result, bytes):
        task.packed, task.exit_code, task.target_state = result, 0, states.DONE
        return
    exit_code = result.get('exit_code')
    task.exit_code = exit_code if type(exit_code) is int else None
    task.stdout = _output(result.get('stdout'))
    task.stderr = _output(result.get('stderr'))
    task.return_value = result.get('return_value')
    task.extra[OUTPUTS_KNOWN] = True
    exception, detail = _text(result.get('exception')), _text(result.get('exception_detail'))
    task.target_state = target_state(result)
    if task.target_state == states.FAILED and exception is None:
        exception = "RuntimeError('task failed')"
        detail = detail or f'exit code: {task.exit_code}'
    task.exception, task.exception_detail = exception, detail
    task.error = None if task.target_state == states.DONE else _record(task, result)


def has_run(task: AgentTask) -> bool:
    """Return whether a task with a result was executed, as far as the result shows."""
    return (task.target_state == states.DONE or task.exit_code is not None
            or states.TASK.value(task.state) >= _EXECUTING)


def result_of(task: AgentTask) -> dict[str, Any]:
    """Return the result of a task that the agent has run, for its master."""
    if task.exit_code is not None and not task.stdout and not task.stderr:
        task.stdout, task.stderr = (tail(_path(task, name)) for name in ('stdout', 'stderr'))
    found = {'exit_code': task.exit_code, 'stdout': task.stdout, 'stderr': task.stderr,
             'exception': task.exception, 'exception_detail': task.exception_detail, 'error': task.error,
             'target_state': task.target_state}
    return {name: value for name, value in found.items() if value not in (None, '')}


def _record(task: AgentTask, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a failure: that of the result, or one that follows from it."""
    told = result.get('error')
    if type(told) is dict and told.get('kind') in KINDS:
        return told
    if task.target_state == states.CANCELED:
        return {'kind': CANCELED}
    if type(result.get('exception')) is str:
        return {'kind': EXCEPTION}
    return of_codes({0: task.exit_code or 1}, shell=False)


def _path(task: AgentTask, stream: str) -> str:
    name: str = task.description[stream] or f'{task.uid}.{stream.replace("std", "")}'
    return name if name.startswith('/') else f'{task.sandbox}/{name}'


def _output(value: Any) -> Any:
    """Return the end of an output, or of that of each rank."""
    if type(value) is list:
        return [_output(each) for each in value]
    text = value if type(value) is str else ''
    return text if len(text) <= TAIL else f'[... CONTENT SHORTENED ...]\n{text[-TAIL:]}'


def _text(value: Any) -> str | None:
    return value if type(value) is str or value is None else repr(value)


SUBMITTED = (c.TASK_EXECUTABLE, c.RAPTOR_WORKER)
"""The modes of tasks that a master may submit."""


def find_program(description: Description, environment: Mapping[str, str]) -> None:
    """Set the program of a master or worker: the one on the PATH, or else that of this environment.

    Tasks with another environment, or with commands to run before, are left unchanged, as these may change the PATH.
    `environment` has the variables that the agent's environment adds to that of tasks. In a container, it is always the
    program of this environment, whose directories are mounted. Raises DescriptionError, with the command that installs
    it, if it is missing.
    """
    if description['named_env'] == NAMED_ENV:   # where the agent itself runs
        description['named_env'] = ''
        if environment:
            added = environment if description['literal_arguments'] else {
                name: escaped(value) for name, value in environment.items()}
            description['environment'] = {**added, **description['environment']}
    role = PROGRAMS.get(description['executable'])
    if role is None:
        return
    if description['container']:
        description['container'] = merged({BINDS: _installation()}, description['container'])
    elif (description['named_env'] or description['pre_exec'] or description['pre_launch']
            or _is_found(description)):
        return
    missing = distributions.missing('rp-raptor')
    if missing:
        raise DescriptionError(missing)
    description['arguments'] = ['-m', 'rp_raptor.cli', role, *description['arguments']]
    description['executable'] = sys.executable


def _is_found(description: Description) -> bool:
    path = description['environment'].get('PATH') or os.environ.get('PATH')
    return shutil.which(description['executable'], path=path) is not None


def _installation() -> list[str]:
    """Return the directories of this Python and its packages, except those of the system, which an image has itself."""
    found: list[str] = []
    for path in (sys.prefix, sys.base_prefix, *sys.path):
        if os.path.isdir(path) and not any(f'{path}/'.startswith(f'{known}/') for known in ('/usr', *found)):
            found.append(path)
    return found


def submitted(data: Mapping[str, Any], master: str) -> dict[str, Any]:
    """Return the checked description of a task that a master submits; raise ValueError if it is invalid."""
    description = TaskDescription(data)
    description.check()
    mode = description.mode
    if mode not in SUBMITTED:
        raise DescriptionError(f'TaskDescription.mode is {mode!r}, but a master can have the agent run only '
                               f'{" and ".join(map(repr, SUBMITTED))}')
    if dict.get(description, AFTER):
        raise DescriptionError(f'TaskDescription.after is {description[AFTER]!r}, but a master cannot submit tasks '
                               'that depend on others: leave it unset')
    if mode == c.RAPTOR_WORKER:
        description.raptor_id = master
    complete(description)
    sparse = description.sparse()
    for name in ('input_staging', 'output_staging'):
        if sparse.get(name):
            sparse[name] = expand(sparse[name])
    return sparse
