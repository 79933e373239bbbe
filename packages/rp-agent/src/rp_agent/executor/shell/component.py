"""The executor SHELL: the executor POPEN with a launch loop whose processes one persistent /bin/sh starts.

The shell is the parent of the tasks' processes (see `shell.shell_loop`). It counts its code 128 + n as the end by
signal n, because it means that for nearly all programs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.outcome import exit_code_of_task, fail
from rp_agent.executor.popen.component import Executor
from rp_agent.executor.run import Run
from rp_agent.executor.shell.shell_loop import SHELL_NAME, ShellLoop
from rp_agent.task import AgentTask
from rp_api.failures.kinds import LOST


class ShellExecutor(Executor):
    """Runs tasks as processes of this node, started by a shell; `grace` is the time between SIGTERM and SIGKILL.

    Raise PlatformError if the machine lacks programs that the shell needs.
    """

    by_shell = True
    uses_dvms = False

    def expect(self, expected: Callable[[int], Sequence[AgentTask]]) -> None:
        """Ignore the forecast: the shell prepares no processes."""

    def _make_loop(self, context: PilotContext) -> ShellLoop:
        shared = list(self._environment.with_gpus.block({}))   # `env` can add variables, and remove none
        messages = os.path.join(context.own_sandbox, f'{self.uid}.sh.err')
        # processes that a dead shell has just started may not have the environment of their task
        return ShellLoop(self.uid, context.base_env.get('PATH', os.defpath), shared, messages, context.belongs,
                         lambda name: self._reaper.sweep([name], SHELL_NAME))

    def _start_plain(self, task: AgentTask) -> bool:
        return False

    def _not_executed(self, run: Run, rank: int, error: OSError) -> None:
        """Hand on a task whose shell has died."""
        task = run.task
        self._record(task.uid, 'task_run_stop')
        task.exit_code = exit_code_of_task(run.codes)
        fail(task, str(error), {'kind': LOST}, exception=str(error))
        self._to_sweep.add(task.uid)
        self._hand_on(task)
