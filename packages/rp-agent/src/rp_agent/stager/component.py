"""The stagers of the agent, which execute its staging directives: those of input, and those of output.

`StagerInput` takes tasks in AGENT_STAGING_INPUT_PENDING, and passes them on in AGENT_SCHEDULING_PENDING. `StagerOutput`
takes them in AGENT_STAGING_OUTPUT_PENDING, and passes them on in TMGR_STAGING_OUTPUT_PENDING.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress

from rp_agent.stager.look import look
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.component import Component
from rp_api.errors import PilotError
from rp_api.failures.kinds import STAGING
from rp_api.loop.offload import Offload
from rp_api.staging.directive import Directive
from rp_api.staging.interruption import interruptible
from rp_api.staging.location import Sandboxes, acts_on_client
from rp_api.staging.protocol import protocol
from rp_api.staging.run import is_removable, remove_sandbox, run
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


class StagerInput(Component):
    """Executes the agent's staging directives of a task before it is scheduled; passes on tasks without directives.

    `failed(tasks)` receives tasks whose staging has failed, or that were cancelled meanwhile.
    """

    def __init__(self, uid: str, tracer: Tracer, sandboxes: Callable[[AgentTask], Sandboxes], offload: Offload,
                 failed: Callable[[list[AgentTask]], None]) -> None:
        super().__init__(uid, tracer)
        self._sandboxes = sandboxes
        self._offload = offload
        self._failed = failed
        self._busy: dict[str, AgentTask] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self._busy

    def put(self, tasks: list[AgentTask]) -> None:
        """Accept tasks and stage their input."""
        self.received(tasks)
        self.advance(tasks, states.AGENT_STAGING_INPUT)
        ready: list[AgentTask] = []
        odd: list[AgentTask] = []
        for task in tasks:
            description = task.description
            if dict.get(description, 'input_staging'):   # not set in most descriptions
                self._busy[task.uid] = task
                self._offload(partial(self._stage, task), partial(self._staged, task), partial(self._broke, task))
                continue
            if dict.get(description, 'sandbox'):   # other tasks may use the same directory
                try:
                    task.extra['before'] = set(_names(task))
                except Exception as error:
                    task.broke(error, 'looking at its sandbox')
            (ready if task.target_state is None else odd).append(task)
        if odd:
            self._failed(odd)
        self._pass_on(ready)

    def cancel(self, uids: Iterable[str], reason: str = 'cancelled while its input was staged') -> None:
        """Cancel the tasks whose input is being staged, and ignore the results of the staging."""
        ended = [self._busy.pop(uid) for uid in uids if uid in self._busy]
        for task in ended:
            task.cancel(reason)
        if ended:
            self._failed(ended)

    def cancel_all(self, reason: str) -> None:
        """Cancel all tasks whose input is being staged."""
        self.cancel(list(self._busy), reason)

    def _stage(self, task: AgentTask) -> None:
        if task.cancelled:
            return
        directives = task.description['input_staging']
        try:
            os.makedirs(task.sandbox, exist_ok=True)
            packed = [directive for directive in directives if protocol(directive['action']).packed]
            if packed:
                self._unpack(task, packed[0])
            with interruptible(lambda: task.uid not in self._busy):   # cancelled
                stage(task, directives, self._sandboxes(task), self.tracer, 'staging_in')
            task.extra['before'] = set(_names(task))
        except (PilotError, OSError) as error:
            task.fail(str(error), 'input staging failed', STAGING)

    @staticmethod
    def _unpack(task: AgentTask, directive: Directive) -> None:
        """Unpack the client's archive, which holds the files of all directives with this action."""
        from rp_api.staging.tarball import unpack

        archive = os.path.join(task.sandbox, f'{task.uid}.tar')
        unpack(directive, archive, task.sandbox)
        os.unlink(archive)

    def _broke(self, task: AgentTask, error: BaseException) -> None:
        task.broke(error, 'input staging')
        self._staged(task, None)

    def _staged(self, task: AgentTask, _: None) -> None:
        if self._busy.pop(task.uid, None) is None:
            return   # cancelled
        if task.cancelled:
            task.cancel('cancelled while its input was staged')
        if task.target_state is None:
            self._pass_on([task])
        else:
            self._failed([task])

    def _pass_on(self, tasks: list[AgentTask]) -> None:
        if tasks:
            self.advance(tasks, states.AGENT_SCHEDULING_PENDING)
            self.forward(tasks)


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


def _names(task: AgentTask) -> list[str]:
    """Return the names of the files in the task's sandbox; none if the sandbox cannot be read."""
    try:
        return os.listdir(task.sandbox)
    except (OSError, ValueError):   # the executor reports the error
        return []


def stage(task: AgentTask, directives: list[Directive], sandboxes: Sandboxes, tracer: Tracer, name: str) -> None:
    """Execute the agent's directives, and record the client's as skipped. Relative paths start at the task's sandbox.

    Raises `StagingError` for the first directive that fails.
    """
    mine = []
    for directive in directives:
        if acts_on_client(directive['action']):
            tracer.record(f'{name}_skip', task.uid, msg=directive['uid'])
        else:
            mine.append(directive)
    run(task.uid, mine, ('task', 'task'), sandboxes, tracer, name)
