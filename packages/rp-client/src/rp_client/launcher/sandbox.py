"""The directories of a session on the client and on a platform, and access to those that the client can reach."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from rp_api.description.pilot import PilotDescription
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import fill
from rp_api.staging import run
from rp_api.staging.directive import Directive
from rp_api.staging.location import Sandboxes
from rp_api.system import private
from rp_api.system.host import with_home
from rp_client.launcher.batch.shell import is_remote
from rp_profiling.write.tracer import Tracer

_HOME = re.compile(r'\$(?:HOME\b|\{HOME\})')
_ACCOUNTS = {'ornl': '_', 'ncsa': '-'}
"""Separators in account names that begin with a project, by site (`CHM155_003`, `bbka-delta-gpu`); directories are
named after projects."""

E = TypeVar('E', bound=Exception)


@dataclass(frozen=True, slots=True)
class PilotSandboxes:
    """The directories of one pilot, as absolute paths on the platform (`client`: on the client).

    `here` is True if the client can access the platform's directories; else `endpoint` is the URL of a host that can.
    `same_python` is True if the agent runs the Python of the client.
    """

    client: str
    resource: str
    session: str
    pilot: str
    here: bool = True
    endpoint: str = ''
    same_python: bool = True

    def moved(self, resource: str) -> PilotSandboxes:
        """Return these directories below another directory of all sessions."""
        session, pilot = (os.path.relpath(path, self.resource) for path in (self.session, self.pilot))
        return replace(self, resource=resource, session=os.path.join(resource, session),
                       pilot=os.path.join(resource, pilot))

    def task(self, uid: str, sandbox: str) -> str:
        """Return the directory of a task: `sandbox` or its uid, relative to the pilot's directory."""
        return os.path.normpath(os.path.join(self.pilot, sandbox or uid))


def make_sandboxes(session: str, pilot: str) -> None:
    """Make the local directories of a pilot, or use existing ones; raise `OwnershipError` if another user owns them.

    The directory of all sessions may be shared, but not planted by another user.
    """
    resource = os.path.dirname(session)
    os.makedirs(resource, exist_ok=True)
    private.check_entry(resource)
    for path in (session, pilot):
        private.make_directory(path, readable=True)


class Sandbox:
    """The sandbox of a task or pilot, in a file system that the client can access."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self.sandboxes = sandboxes
        """The directories in which directives are executed."""

    def make(self) -> None:
        """Make the sandbox."""
        make_sandboxes(self.sandboxes.session, self.sandboxes.pilot)   # they may be needed before the pilot is launched
        os.makedirs(self.sandboxes.task, exist_ok=True)

    def directives(self, directives: Iterable[Directive], bases: tuple[str, str]) -> list[Directive]:
        """Return directives that can be executed with `sandboxes`."""
        return list(directives)

    def run(self, uid: str, directives: Iterable[Directive], bases: tuple[str, str], tracer: Tracer,
            name: str) -> list[str]:
        """Execute directives, and return their targets; see `rp_api.staging.run.run`."""
        return run.run(uid, self.directives(directives, bases), bases, self.sandboxes, tracer, name)

    def remove(self) -> None:
        """Delete the sandbox and its files."""
        run.remove_sandbox(self.sandboxes)


class Files:
    """The files of a pilot and its tasks, in a file system that the client can access."""

    def __init__(self, known: Sandboxes) -> None:
        self._known = known

    def of(self, own: str) -> Sandbox:
        """Return the sandbox in this directory."""
        return Sandbox(self._known._replace(task=own))

    def fetch(self, wanted: Iterable[tuple[str, Iterable[Directive]]], bases: tuple[str, str]) -> None:
        """Prepare the sources of directives, given by sandbox."""

    def finish(self) -> None:
        """Apply all changes to the sandboxes."""

    def fault(self, error: E) -> E:
        """Return the error with paths as the user knows them."""
        return error


def pilot_sandboxes(client: str, session: str, pilot: str, description: PilotDescription,
                    platform: ResourceConfig, *, here: bool = True) -> PilotSandboxes:
    """Return the directories of a pilot: `<work directory>/radical.pilot.sandbox/<session>/<pilot>`.

    Variables in the description's `sandbox` are expanded on the client, those in the platform's definition on the
    platform; they stay in the paths unless the client can access its files (`here`).
    """
    base = description.sandbox or platform.default_remote_workdir or '$PWD'
    workdir = fill(base, _described(description, platform))
    if here or description.sandbox:
        workdir = os.path.expandvars(_HOME.sub(with_home(os.environ).get('HOME', '$HOME'), workdir))
        if '$' in workdir:
            raise ValueError(f'sandbox {base!r} of {pilot} uses an environment variable that is not set: {workdir!r}')
        if not os.path.isabs(workdir):
            raise ValueError(f'sandbox {base!r} of {pilot} is not an absolute path')
    resource = Path(workdir) / 'radical.pilot.sandbox'
    return PilotSandboxes(client, str(resource), str(resource / session), str(resource / session / pilot), here,
                          '' if here else files_endpoint(platform), platform.virtenv_mode == 'local')


def files_endpoint(platform: ResourceConfig) -> str:
    """Return the URL of another host that can access the platform's files; empty if the platform names none."""
    return next(filter(is_remote, (platform.filesystem_endpoint, platform.job_manager_endpoint)), '')


def _described(description: PilotDescription, platform: ResourceConfig) -> dict[str, Any]:
    """Return the description, with the project in the form used in directory names."""
    project = (description.project or '').partition(':')[0]   # without the reservation
    mark = _ACCOUNTS.get(platform.label.partition('.')[0])
    return {**description, 'project': project.partition(mark)[0] if mark else project}
