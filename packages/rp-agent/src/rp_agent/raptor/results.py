"""The results of tasks that masters send to the agent, and the agent to masters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_agent.executor.launching.outcome import of_codes
from rp_agent.stager.component import OUTPUTS_KNOWN, TAIL, tail
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.failures.kinds import CANCELED, EXCEPTION, EXIT, KINDS
from rp_api.raptor_link import target_state

TOLD = 'raptor.told'
"""Key in a task's `extra`: the result of its execution by the agent, which was sent to its master."""



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


def apply_checked(task: AgentTask, result: Mapping[str, Any] | bytes) -> None:
    """Apply a result that the user's code in the master may have made invalid, completed by that of the agent's run."""
    told: dict[str, Any] = task.extra.pop(TOLD, {})
    try:
        apply(task, result if isinstance(result, bytes) else {**told, **result})
    except Exception as error:
        task.broke(error, 'reading the result that its master sent')


def has_run(task: AgentTask) -> bool:
    """Return whether a task with a result was executed, as far as the result shows."""
    return (task.target_state == states.DONE or task.exit_code is not None
            or task.reached(states.AGENT_EXECUTING))


def result_of(task: AgentTask) -> dict[str, Any]:
    """Return the result of a task that the agent has run, for its master."""
    if task.exit_code is not None and not task.stdout and not task.stderr:
        task.stdout, task.stderr = (tail(_path(task, name)) for name in ('stdout', 'stderr'))
    found = {'exit_code': task.exit_code, 'stdout': task.stdout, 'stderr': task.stderr,
             'exception': task.exception, 'exception_detail': task.exception_detail, 'error': task.error,
             'target_state': task.target_state}
    return {name: value for name, value in found.items() if value not in (None, '')}


def explain_worker(task: AgentTask) -> None:
    """Set what the manager of a worker has written at last as the reason why the worker's task has failed."""
    if task.target_state == states.FAILED and task.error and task.error['kind'] == EXIT:
        words = tail(_path(task, 'stderr')).rstrip().rpartition('\n')[2]
        if words.startswith(f'{task.uid}: '):
            reason = words.removeprefix(f'{task.uid}: ')
            task.exception, task.error = repr(RuntimeError(reason)), {**task.error, 'sentence': reason}
            task.exception_detail = f'{reason}\n{task.exception_detail}'


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
