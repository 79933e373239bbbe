"""The builder: a program that builds one environment, or finds it built, and publishes its activation script.

It reads a `BuildRequest` from standard input, and writes to the log of the environment; the last line says why it
failed. An environment is built at the path where it is used, since it cannot be moved. A file in it has its identity
when it is complete: a builder that finds an incomplete one removes it and starts again. It does so alone: the lock is
held until all tools of the builder have ended, and one that finds tools of a killed builder ends them first.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from io import FileIO
from shlex import quote
from typing import NamedTuple

from rp_agent.bootstrap.environment import is_of_a_process, parse
from rp_agent.environments import commands
from rp_agent.environments.published import Built, Files
from rp_agent.environments.sources import BuildError, dependencies, digests
from rp_agent.executor.launching.outcome import explain_code
from rp_agent.lineage import become_subreaper
from rp_api.description.environment import BUILT, UV, EnvSpec, identity, is_pyproject
from rp_api.errors import PilotError, sentence
from rp_api.staging.trees import remove
from rp_api.system import private, processes
from rp_api.system.shell import find_shell

_COMPLETE = '.rp.complete'
"""The file in an environment that a pilot has built, with the identity."""

_LIMIT = 256

_EXECUTED = ('bin/activate', 'bin/python')

_BUILDS = 'RP_BUILDS'
"""The variable with the path of an environment, in all tools that build it."""

_IDENTIFIER = re.compile(r'[A-Za-z_][A-Za-z0-9_]*\Z')
_OF_THE_SCRIPT = 'rp_'
_UNSUPPORTED = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


class BuildRequest(NamedTuple):
    """The work of a builder.

    `base` is the environment of tasks, `shell` the shell of the platform definition, `reserved` has patterns of names
    of variables that no environment may set.
    """

    name: str
    spec: EnvSpec
    base: dict[str, str]
    shell: str
    reserved: list[str]
    pilot_sandbox: str
    resource_sandbox: str


def main() -> int:
    """Build the requested environment; return the exit code."""
    become_subreaper()
    try:
        build(BuildRequest(**json.load(sys.stdin)))
    except (BuildError, PilotError) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(sentence(error), file=sys.stderr)
        return 1
    return 0


def build(request: BuildRequest) -> Built:
    """Build an environment, or find it built, and publish it; raise BuildError, PilotError or OSError."""
    os.chdir(request.pilot_sandbox)
    files = Files.of(request.pilot_sandbox, request.name)
    spec = request.spec
    found = identity(spec, {**digests(spec), 'machine': os.uname().machine})
    path = ''
    if spec['type'] in BUILT:
        path = _place(request, files, found)
        before, after = _in_place(request, path, found)
        if path != files.directory:
            with suppress(FileNotFoundError, IsADirectoryError):   # a directory has what was built before
                os.unlink(files.directory)
            with suppress(FileExistsError):
                os.symlink(path, files.directory)
    else:
        before, after = _run(request, path, None, ())
    before, after = shared(before, request.reserved), shared(after, request.reserved)
    built = Built(request.name, spec, found, path)
    private.write_file(files.variables, os.fsencode(listing(after)))
    built.write(files)
    private.write_file(files.script, os.fsencode(activation_script(before, after)))
    return built


def _place(request: BuildRequest, files: Files, found: str) -> str:
    """Return the absolute path of the environment's directory."""
    spec = request.spec
    if spec['path']:
        return os.path.abspath(spec['path'])
    if not spec['keep']:   # tasks may still use what was built from other contents of the files
        changed = _identity(files.directory) not in ('', found)
        return f'{files.directory}.{found[:16]}' if changed else files.directory
    # others can write to the directory of all sessions
    base = spec['keep'] if isinstance(spec['keep'], str) else f'{request.resource_sandbox}/env.{os.getuid()}'
    private.make_directory(base, readable=True)
    return os.path.join(base, f'{spec["type"]}.{found[:16]}')


def _in_place(request: BuildRequest, path: str, found: str) -> tuple[dict[str, str], dict[str, str]]:
    """Build an environment unless it exists, and return the variables before and after its activation."""
    lock = lock_path(path)
    for each in (*(os.path.join(path, name) for name in _EXECUTED), lock):
        private.check_entry(each, above=True)
    # in this order: a builder creates the lock first
    if os.path.exists(path) and not os.path.exists(lock):
        return _run(request, path, None, ())   # it was not built by a pilot
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(lock) and (owner := os.lstat(lock).st_uid) != os.geteuid():
        return _of_another_user(request, path, found, owner)
    with _build_lock(path, alone=not request.spec['keep'] and not request.spec['path']) as held:
        known = _identity(path)
        if known:
            _check_identity(path, known, found)
            return _run(request, path, None, ())
        processes.sweep({_BUILDS: path}, signal.SIGKILL)
        with suppress(FileNotFoundError):
            remove(path)
        listed = {entry: dependencies(entry) for entry in request.spec['setup']
                  if is_pyproject(entry) and request.spec['type'] != UV}
        variables = _run(request, path, commands.requirements_words(request.spec, listed), (held,))
        private.write_file(os.path.join(path, _COMPLETE), found.encode(), 0o644)
        return variables


def _of_another_user(request: BuildRequest, path: str, found: str, owner: int) -> tuple[dict[str, str], dict[str, str]]:
    """Use the environment that a pilot of another user has built, whose lock cannot be waited for."""
    known = _identity(path)
    if not known:
        raise BuildError(f'{path} is locked by user {private.user_name(owner)}, and has no complete environment: try '
                         'again later, or choose another path')
    _check_identity(path, known, found)
    return _run(request, path, None, ())


def _identity(path: str) -> str:
    """Return the identity of the complete environment in a directory; empty if there is none."""
    try:
        with open(os.path.join(path, _COMPLETE), encoding='utf-8') as file:
            return file.read(_LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        return ''


def _check_identity(path: str, known: str, found: str) -> None:
    if known != found:
        raise BuildError(f'{path} has an environment that another specification describes, or other contents of the '
                         f'files that it names: choose another path, or remove {path} when no task uses it')


def _run(request: BuildRequest, path: str, requirements: list[str] | None,
         inherited: tuple[int, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Run the script of an environment, and return the variables before and after its activation."""
    with ExitStack() as stack:
        before, after, reason, text = [stack.enter_context(FileIO(os.memfd_create(name), 'w+'))
                                       for name in ('before', 'after', 'reason', 'script')]
        text.write(os.fsencode(commands.script(request.spec, path, requirements,
                                               *map(_path_of, (before, after, reason)))))
        shell = find_shell(request.shell, request.base.get('PATH', os.defpath))
        own = {name: value for name, value in os.environ.items() if name.startswith('RP_')}
        if inherited:
            own[_BUILDS] = path
        code = subprocess.run([shell, _path_of(text)], stdin=subprocess.DEVNULL, check=False,
                              env={**request.base, 'PWD': os.getcwd(), **own},
                              pass_fds=(*(file.fileno() for file in (before, after, reason, text)), *inherited),
                              ).returncode
        if code:
            _end_tools()
            raise BuildError(_content(reason).decode(errors='replace').strip() or explain_code(code, shell=True))
        return parse(_content(before)), parse(_content(after))


def _end_tools() -> None:
    """End all processes that the build has started, of which this process is the reaper, and wait for their ends."""
    while True:
        processes.kill_tree((os.getpid(),), signal.SIGKILL)   # all but this process itself
        try:
            os.wait()
        except ChildProcessError:
            return


def _path_of(file: FileIO) -> str:
    return f'/proc/self/fd/{file.fileno()}'


def _content(file: FileIO) -> bytes:
    file.seek(0)
    return file.read()


def shared(variables: Mapping[str, str], reserved: Sequence[str]) -> dict[str, str]:
    """Return the variables that an environment may set: identifiers that no pattern in `reserved` matches."""
    return {name: value for name, value in variables.items()
            if _IDENTIFIER.match(name) and not name.startswith(_OF_THE_SCRIPT) and not is_of_a_process(name)
            and not any(fnmatchcase(name, pattern) for pattern in reserved)}


def activation_script(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return the script that turns the variables `old`, before an activation, into those after it."""
    lines = [_export(name, old.get(name, ''), value) for name, value in sorted(new.items()) if old.get(name) != value]
    lines += [f'unset {name}' for name in sorted(old.keys() - new.keys())]
    return ''.join(f'{line}\n' for line in lines)


def listing(variables: Mapping[str, str]) -> str:
    """Return the variables as `env` lists them."""
    return ''.join(f'{name}={value}\n' for name, value in sorted(variables.items()))


def _export(name: str, old: str, new: str) -> str:
    if old and new.endswith(f':{old}'):
        return f'export {name}={quote(new.removesuffix(f":{old}"))}"${{{name}:+:${name}}}"'
    if old and new.startswith(f'{old}:'):
        return f'export {name}="${{{name}:+${name}:}}"{quote(new.removeprefix(f"{old}:"))}'
    return f'export {name}={quote(new)}'


def lock_path(directory: str) -> str:
    """Return the path of the lock of a directory."""
    return f'{directory}.lock'


@contextmanager
def _build_lock(directory: str, *, alone: bool) -> Iterator[int]:
    """Wait for the lock of a directory, and hold it; yield its descriptor. OwnershipError if it is another user's.

    Some file systems have no locks. Then only one agent may use the directory, and it is not locked (`alone`).
    """
    path = lock_path(directory)
    held = private.open_file(path, os.O_RDWR | os.O_CREAT, readable=True)
    try:
        try:
            os.fchmod(held, 0o600)   # other users could hold a lock that they can open
            fcntl.flock(held, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            if not alone:
                raise BuildError(f'the file system of {path} has no file locks ({error.strerror}), which environments '
                                 'that pilots share need: choose another directory') from error
        yield held
        try:   # what the build has left in the background may go on
            fcntl.flock(held, fcntl.LOCK_UN)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    finally:
        os.close(held)


if __name__ == '__main__':
    sys.exit(main())
