"""Output stager of the agent: AGENT_STAGING_OUTPUT_PENDING in, TMGR_STAGING_OUTPUT_PENDING out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress

from rp_agent.stager.base import stage
from rp_agent.stager.look import look
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.component import Component
from rp_api.errors import PilotError
from rp_api.failures.kinds import STAGING
from rp_api.loop.offload import Offload
from rp_api.staging.location import Sandboxes, acts_on_client
from rp_api.staging.run import is_removable, remove_sandbox
from rp_api.system.readable import open_regular
from rp_profiling.write.tracer import Tracer

OUTPUTS_KNOWN = 'outputs_known'
"""Key in `AgentTask.extra` of tasks whose output is known, so that the stager does not read files."""

TAIL = 1024
"""Maximum number of characters of standard output and error that are sent to the application."""

_READ = ('staging_stdout_start', 'staging_stdout_stop', 'staging_stderr_start', 'staging_stderr_stop')
_LISTED = ('staging_ofile_start', 'staging_ofile_stop')

_CHUNK = 1 << 20
"""Bytes of a task's profile that are copied at once."""

MIN_SANDBOXES = 8
"""Minimum number of sandboxes in a directory for which the directory is listed."""

MAX_ENTRIES_PER_SANDBOX = 16
"""Maximum number of directory entries per sandbox for which the directory is listed."""


class StagerOutput(Component):
    """Reads the end of each task's output, and executes the agent's output staging directives.

    Directives are executed for tasks that succeeded, and for failed ones with `stage_on_error`.
    """

    def __init__(self, uid: str, tracer: Tracer, sandboxes: Callable[[AgentTask], Sandboxes],
                 offload: Offload) -> None:
        super().__init__(uid, tracer)
        self._sandboxes = sandboxes
        self._offload = offload
        self._missing = Missing()

    def put(self, tasks: list[AgentTask]) -> None:
        """Accept tasks that have run."""
        self.received(tasks)
        self.advance(tasks, states.AGENT_STAGING_OUTPUT)
        ready = []
        missing = self._missing.of([task.sandbox for task in tasks if task.packed is not None])
        before, wants_work = None, False
        for task in tasks:
            if task.description is not before:   # RAPTOR's calls share theirs
                before, wants_work = task.description, self._wants_work(task)
            if wants_work:
                self._offload(partial(self._finish, task), self._finished, partial(self._broke, task))
                continue
            if task.sandbox not in missing:
                try:
                    self._collect(task)
                except Exception as error:
                    task.broke(error, 'looking at its output')
            ready.append(task)
        self._pass_on(ready)

    def _wants_work(self, task: AgentTask) -> bool:
        description = task.description
        return (('output_staging' in description or 'cleanup' in description)   # not set in most descriptions
                and bool(description['output_staging'] or description['cleanup']))

    def _finished(self, task: AgentTask) -> None:
        self._pass_on([task])

    def _broke(self, task: AgentTask, error: BaseException) -> None:
        task.broke(error, 'output staging')
        self._finished(task)

    def _finish(self, task: AgentTask) -> AgentTask:
        """Read outputs, stage and clean up (may take long, in a thread); return the task."""
        directives = task.description['output_staging']
        self._collect(task)
        if task.target_state == states.DONE or task.description['stage_on_error']:
            try:
                stage(task, directives, self._sandboxes(task), self.tracer, 'staging_out')
            except (PilotError, OSError) as error:
                task.fail(str(error), 'output staging failed', STAGING)
        if task.description['cleanup']:
            self._keep_profile(task)
        if task.description['cleanup'] and not any(acts_on_client(each['action']) for each in directives):
            remove_sandbox(self._sandboxes(task))
        return task

    def _keep_profile(self, task: AgentTask) -> None:
        """Copy the profile of a task whose sandbox is to be removed, by this stager or the client."""
        if not self.tracer.enabled or not is_removable(self._sandboxes(task)):
            return
        with suppress(OSError), open_regular(f'{task.sandbox}/{task.uid}.prof') as file:
            self.tracer.record('staging_uprof_start', task.uid)
            try:
                while rows := b''.join(file.readlines(_CHUNK)):
                    self.tracer.copy(rows)
            finally:
                self.tracer.record('staging_uprof_stop', task.uid)

    def _collect(self, task: AgentTask) -> None:
        out, err, names = look(task.sandbox, task.uid)
        known = task.packed is not None or OUTPUTS_KNOWN in task.extra
        if task.exit_code is not None and not known:   # the task has run
            self._read_outputs(task, out, err)
        if self.tracer.full_detail:
            self.tracer.record_many(task.uid, _LISTED)
        if names:
            task.output_files = _new_files(task, names)

    def _read_outputs(self, task: AgentTask, out: int, err: int) -> None:
        """Read the ends of the outputs; `out` and `err` are the sizes of the files with default names."""
        uid = task.uid
        stdout, stderr = task.description['stdout'], task.description['stderr']
        if not (stdout or stderr or out > 0 or err > 0):
            self.tracer.record_many(uid, _READ)
            return
        self.tracer.record('staging_stdout_start', uid)
        task.stdout = tail(_path(task, stdout or f'{uid}.out'))
        self.tracer.record_many(uid, ('staging_stdout_stop', 'staging_stderr_start'))
        task.stderr = tail(_path(task, stderr or f'{uid}.err'))
        self.tracer.record('staging_stderr_stop', uid)

    def _pass_on(self, tasks: list[AgentTask]) -> None:
        if tasks:
            self.advance(tasks, states.TMGR_STAGING_OUTPUT_PENDING)
            self.forward(tasks)


def _path(task: AgentTask, name: str) -> str:
    return name if name.startswith('/') else f'{task.sandbox}/{name}'


def _new_files(task: AgentTask, found: list[str]) -> list[str]:
    """Return the files that the task has created, without its standard files and staged input."""
    standard = (task.description['stdout'], task.description['stderr'])
    known = task.extra.get('before', set()) | {os.path.relpath(_path(task, name), task.sandbox)
                                               for name in standard if name}
    return sorted(name for name in found if name not in known)


def tail(path: str, limit: int = TAIL) -> str:
    """Return the end of a text file, with a mark if it is shortened; empty if the file cannot be read."""
    try:
        size = os.stat(path).st_size
        if not size:
            return ''
        with open_regular(path) as file:
            file.seek(max(0, size - 4 * limit))   # a UTF-8 character has at most four bytes
            text = file.read(4 * limit).decode(errors='replace')
    except OSError:
        return ''
    if len(text) <= limit and size <= 4 * limit:
        return text
    return f'[... CONTENT SHORTENED ...]\n{text[-limit:]}'


class Missing:
    """Looks up many sandboxes with one listing of their directory."""

    def __init__(self) -> None:
        self._entries: dict[str, int] = {}   # number of entries when a directory was last listed

    def of(self, sandboxes: Sequence[str]) -> set[str]:
        """Return the sandboxes that are known not to exist; the others may exist."""
        parents = [sandbox.rpartition('/')[0] for sandbox in sandboxes]
        found: dict[str, list[str]] = {}
        for parent, count in Counter(parents).items():
            names = self._listed(parent, count)
            if names is not None:
                found[parent] = [f'{parent}/{name}' for name in names]
        if not found:
            return set()
        known = sandboxes if len(found) == len(set(parents)) else compress(sandboxes, map(found.__contains__, parents))
        return set(known).difference(*found.values())

    def _listed(self, parent: str, count: int) -> list[str] | None:
        """Return what is in the directory of `count` sandboxes; None if that is unknown."""
        if count < MIN_SANDBOXES or self._entries.get(parent, 0) > MAX_ENTRIES_PER_SANDBOX * count:
            return None
        try:
            found = os.listdir(parent)
        except OSError:
            return None
        self._entries[parent] = len(found)
        return found
