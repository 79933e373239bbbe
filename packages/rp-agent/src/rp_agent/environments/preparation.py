"""The part of an agent that prepares environments, for its pilot's description and for calls, and tells the gate."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from rp_agent import sandbox
from rp_agent.calls import Call
from rp_agent.components.build import belongs, pilot_context
from rp_agent.environments.environments import Distribute, Done, Environments, Failed
from rp_agent.environments.published import UNREADABLE, Built, Files
from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.launch_method.base import LaunchMethod
from rp_agent.launch_method.find import find
from rp_agent.logs import LOG
from rp_agent.node_copies.copies import NodeCopies
from rp_agent.node_copies.distributor import Outcome
from rp_agent.prerequisites.gate import ENVIRONMENT, Gate, Need, Variables
from rp_agent.task import AgentTask
from rp_api.description.container import merged
from rp_api.description.environment import BUILT, CONTAINER, EnvSpec, normal_form
from rp_api.errors import DescriptionError, PlatformError, sentence
from rp_api.logger import logger
from rp_api.loop.event_loop import Loop
from rp_api.raptor_link import PROGRAMS
from rp_api.system import private

_CONTAINER = 'container'
"""The attribute of a task description."""

_PLAIN = re.compile(r'[A-Za-z0-9@%+=:,./_-]+')
"""A path that has the same meaning inside and outside of quotes."""

_NODES_SHOWN = 3
"""Number of nodes without a copy that a notice names."""


class Preparation:
    """Prepares environments, and provides them to the tasks that wait for them.

    `notice` gets a sentence for the application about an environment that cannot be built. `distribute` is called for
    each environment that was built, before tasks may use it.
    """

    def __init__(self, config: Mapping[str, Any], loop: Loop, gate: Gate, notice: Callable[[str], None],
                 distribute: Distribute = lambda built, done: done()) -> None:
        base = TaskEnvironment(pilot_context(config)).base
        self._sandbox = sandbox.of_pilot(config)
        self.environments = Environments(config, loop, base, belongs(config), self._sandbox,
                                         _reserved(config['platform']), distribute=distribute)
        self._gate = gate
        self._notice = notice

    def prepare_all(self, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        """Prepare the environments of the pilot's description."""
        for name, spec in wanted.items():
            self.prepare(name, spec, lambda: None, lambda reason, detail: self._notice(reason))

    def restore(self) -> None:
        """Prepare the environments that an earlier run of the pilot's job had, which tasks may still wait for."""
        for record in Files.records(self._sandbox):
            try:
                built = Built.read(record)
            except UNREADABLE as error:
                logger(LOG).error('%s cannot be read: %s', record, sentence(error))
                continue
            self.prepare(built.name, built.spec, lambda: None, lambda reason, detail: self._notice(reason))

    def answer(self, call: Call) -> None:
        """Answer the call `prepare_env(env_name, env_spec)`, once the environment exists."""
        def prepare_env(env_name: str, env_spec: Mapping[str, Any]) -> None:
            self.prepare(env_name, env_spec, call.done, call.fail)

        prepare_env(*call.args, **call.kwargs)

    def prepare(self, env_name: str, env_spec: Mapping[str, Any], done: Done, failed: Failed) -> None:
        """Prepare an environment, then call `done()` or `failed(reason, detail)`; raise DescriptionError."""
        spec = normal_form(env_name, env_spec)
        need = Need(ENVIRONMENT, env_name)
        if self.environments.knows(env_name):   # its tasks are told already
            self.environments.prepare(env_name, spec, done, failed)
            return

        def ready() -> None:
            self._gate.provide(need, self._variables(env_name, spec))
            done()

        def broken(reason: str, detail: str) -> None:
            self._gate.fail(need, reason, detail)
            failed(reason, detail)

        self._gate.expect(need, 'is being built')
        self.environments.prepare(env_name, spec, ready, broken)

    def _variables(self, name: str, spec: EnvSpec) -> Variables | None:
        if spec['type'] == CONTAINER:
            return partial(_enter, spec['container'])
        return partial(_require_program, Files.of(self._sandbox, name).record) if spec['type'] in BUILT else None

    def stop(self, reason: str) -> None:
        """End all builders."""
        self.environments.close()

    def close(self) -> None:
        """Release all resources."""
        self.environments.close()


def _reserved(platform: Mapping[str, Any]) -> set[str]:
    """Return patterns of the variables that belong to the pilot or to a launch method of the platform."""
    found = set(LaunchMethod.RESERVED)
    for name in platform.get('launch_methods', {}).get('order', ()):
        with suppress(PlatformError):   # an unknown method is reported when a task needs it
            found.update(find(name).RESERVED)
    return found


def _require_program(record: str, task: AgentTask) -> Mapping[str, str]:
    """Raise DescriptionError for a RAPTOR master or worker whose program is not in its environment."""
    # otherwise it would run in another one, whose program is on the PATH, too
    if task.description['executable'] in PROGRAMS:
        try:
            built = Built.read(record)
        except UNREADABLE as error:
            raise DescriptionError(f'{record} cannot be read: {sentence(error)}') from error
        if not os.access(os.path.join(built.path, 'bin', task.description['executable']), os.X_OK):
            raise DescriptionError(f'rp-raptor is not installed in environment {built.name}: name it in "setup" of the '
                                   'environment, or leave named_env unset')
    return {}


def _enter(container: Mapping[str, Any], task: AgentTask) -> Mapping[str, str]:
    """Make a task run in the container of its environment."""
    task.description[_CONTAINER] = merged(container, task.description[_CONTAINER])
    return {}


class OnNodes:
    """The environments of a pilot on the disks of its nodes.

    `notice` gets a sentence for the application about nodes without a copy.
    """

    def __init__(self, config: Mapping[str, Any], copies: NodeCopies, notice: Callable[[str], None]) -> None:
        self._sandbox = sandbox.of_pilot(config)
        self._copies = copies
        self._notice = notice

    def distribute(self, built: Built, done: Done) -> None:
        """Copy an environment to all nodes, then call `done()`."""
        files = Files.of(self._sandbox, built.name)
        # beside the environment, for later pilots; but the directories of others are not written to
        archive = f'{files.directory if built.spec["path"] else built.path}.tgz'
        try:
            self._copies.provide(built.identity[:16], built.path, archive, partial(self._copied, built, files, done),
                                 lambda reason, _: self._missing(built, reason, done))
        except OSError as error:
            self._missing(built, f'{archive}: {error.strerror}', done)

    def stop(self, reason: str) -> None:
        """Wait for the end of the tasks, which use the copies."""

    def close(self) -> None:
        """End all copying, and remove the copies on this host."""
        self._copies.close()

    def _copied(self, built: Built, files: Files, done: Done, outcome: Outcome) -> None:
        paths = {path for path in outcome.paths.values() if _PLAIN.fullmatch(path)}
        failures = outcome.failures | {node: f'{path} has characters that a shell replaces'
                                       for node, path in outcome.paths.items() if path not in paths}
        with open(files.script, encoding='utf-8', errors='surrogateescape') as file:
            script = file.read()
        private.write_file(files.script, os.fsencode(script_with_copies(script, built.path, sorted(paths))))
        if failures:
            reasons = [reason for _, reason in sorted(failures.items())]
            more = f' and {len(reasons) - _NODES_SHOWN} more' if len(reasons) > _NODES_SHOWN else ''
            self._missing(built, f'{"; ".join(reasons[:_NODES_SHOWN])}{more}', done)
        else:
            done()

    def _missing(self, built: Built, reason: str, done: Done) -> None:
        self._notice(f'the environment {built.name!r} is used from {built.path} on nodes without a copy: {reason}')
        done()


def script_with_copies(script: str, path: str, copies: Iterable[str]) -> str:
    """Return an activation script that activates the first of these copies that is on the node, else `path`.

    A copy is used only if it belongs to this user.
    """
    there = re.compile(rf'{re.escape(path)}(?![\w.-])')
    lines = ''
    for number, copy in enumerate(copies):
        lines += f'{"elif" if number else "if"} test -O {copy}; then\n{there.sub(copy, script) or ":"}\n'
    return f'{lines}else\n{script or ":"}\nfi\n' if lines else script
