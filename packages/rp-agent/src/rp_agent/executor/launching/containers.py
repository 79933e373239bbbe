"""Containers of tasks: the command lines that run the program of a rank in a container.

`contained` returns a copy of a task whose executable is the container tool, and whose arguments are the tool's options,
the image, and the program. All kinds of plans then start it as any other program: directly, from a script, or by a
launcher. So `pre_exec` and the launcher run outside of the container, and each rank has one of its own.

The sandboxes, `/tmp` and the binds of the description have the same paths inside; the network, `/dev/shm` and the
variables are those of the node. An MPI program thus finds the launcher that has started it.
"""

from __future__ import annotations

import os
import pwd
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, NamedTuple

from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.launched import places
from rp_agent.executor.launching.launchers import is_mpi
from rp_agent.lookup import LaunchRefused
from rp_agent.task import AgentTask, Description
from rp_api.description.container import BINDS, GPU, IMAGE, TOOL, TOOLS, parts_of
from rp_api.system.shell_text import arguments_of, escaped, expand, has_command, texts_of, values_of

PROGRAMS = {'charliecloud': 'ch-run'}
"""The programs of tools that have another name."""

TMP = '/tmp'

_IMAGE_VARIABLES = 'ch/environment'
"""The file with the variables of an image of Charliecloud, in its directory."""

_COMMANDS_BEFORE = ('pre_launch', 'pre_exec', 'named_env')
_IDENTIFIER = re.compile(r'[A-Za-z_][A-Za-z0-9_]*\Z')
_SEPARATORS = (':', ',')
_LIKE_A_PATH = ('/', './', '../')


class Bind(NamedTuple):
    """A path of the node that is visible in the container."""

    source: str
    target: str
    mode: str = ''

    def __str__(self) -> str:
        if self.mode:
            return f'{self.source}:{self.target}:{self.mode}'
        return self.source if self.source == self.target else f'{self.source}:{self.target}'


class Box(NamedTuple):
    """A container to start: `program` is the tool's, `directory` the directory in which the task's program starts.

    `is_path` tells whether the image is a path, not the name of an image. `variables` are names from the description,
    whose values take precedence over those of the image; `has_variables` tells whether a directory is known to have the
    file with those of the image. `scratch` is the node's TMPDIR, empty if it is `/tmp`. `user` has the numbers of the
    user and the group; `login` is the name of the user if no variable has it. An MPI task has up to `peers` ranks on a
    node, and a `tag` of its own.
    """

    program: str
    image: str
    is_path: bool
    directory: str
    binds: tuple[Bind, ...] = ()
    gpu: str = ''
    variables: tuple[str, ...] = ()
    has_variables: bool = False
    scratch: str = ''
    user: tuple[int, int] = (0, 0)
    login: str = ''
    peers: int = 0
    tag: str = ''


class ContainerCommand(NamedTuple):
    """The words before the task's program, and variables for the tool."""

    words: list[str]
    environment: dict[str, str]


def apptainer(box: Box) -> ContainerCommand:
    """Return the command for Apptainer; for a variable NAME it takes the value of `APPTAINERENV_NAME`."""
    words = [box.program, 'exec', f'--pwd={box.directory}', *(f'--bind={bind}' for bind in box.binds)]
    if box.gpu:
        words.append({'nvidia': '--nv', 'rocm': '--rocm'}[box.gpu])
    return ContainerCommand([*words, box.image], {f'APPTAINERENV_{name}': f'${{{name}}}' for name in box.variables})


def singularity(box: Box) -> ContainerCommand:
    """Return the command for Singularity, which has the options of Apptainer, and its own names of variables."""
    return ContainerCommand(apptainer(box).words, {f'SINGULARITYENV_{name}': f'${{{name}}}' for name in box.variables})


def podman(box: Box) -> ContainerCommand:
    """Return the command for Podman.

    The container keeps the user, the network, the shared memory and the control groups of the job. An init process
    passes signals on to the program.
    """
    words = [box.program, 'run', '--rm', '--init', '--cgroups=disabled', '--log-driver=none',
             '--network=host', '--ipc=host', '--uts=host', '--security-opt=label=disable', '--entrypoint=',
             f'--user={box.user[0]}:{box.user[1]}', f'--workdir={box.directory}', '--env-host']
    if box.user[0] != 0:
        words += ['--userns=keep-id', '--group-add=keep-groups']
    words += [f'--env={name}' for name in box.variables]
    binds = box.binds if any(bind.target == TMP for bind in box.binds) else (Bind(TMP, TMP), *box.binds)
    words += [f'--volume={bind.source}:{bind.target}' + (f':{bind.mode}' if bind.mode else '') for bind in binds]
    words += {'nvidia': ['--device=nvidia.com/gpu=all'], 'rocm': ['--device=/dev/kfd', '--device=/dev/dri'],
              '': []}[box.gpu]
    # the overlay keeps mount points and other changes out of the directory
    return ContainerCommand([*words, *(['--rootfs', f'{box.image}:O'] if box.is_path else [box.image])], {})


def charliecloud(box: Box) -> ContainerCommand:
    """Return the command for Charliecloud, which passes devices and all variables on.

    It mounts TMPDIR at `/tmp` and unsets it; here, both keep their paths. It needs USER, and cannot mount read-only.
    The ranks of an MPI task on a node share a container: the kernel allows no direct access to the memory of others.
    """
    for bind in box.binds:
        if bind.mode == 'ro':
            raise LaunchRefused(f"Charliecloud cannot mount read-only: '{bind}'")
    words = [box.program, f'--cd={box.directory}', '--env-no-expand', *(f'--bind={bind}' for bind in box.binds)]
    if box.has_variables:
        words.append('--set-env')
    words += [f'--set-env={name}=${{{name}}}' for name in box.variables]
    if box.peers > 1:
        words += [f'--join-ct={box.peers}', f'--join-tag={box.tag}']
    if box.scratch:
        words.append(f'--set-env=TMPDIR={box.scratch}')
    environment = {'USER': box.login} if box.login else {}
    return ContainerCommand([*words, box.image, '--'], environment | ({'TMPDIR': TMP} if box.scratch else {}))


_COMMANDS = {'apptainer': apptainer, 'singularity': singularity, 'podman': podman, 'charliecloud': charliecloud}


def contained(task: AgentTask, environment: TaskEnvironment) -> AgentTask:
    """Return a copy of a task that starts its program in its container.

    Raises:
        LaunchRefused: The tool or the image is missing, or the tool cannot mount a path; the message names it.
    """
    description = task.description
    wanted = description['container']
    tool, program = _tool(task, environment)
    image = expand(wanted[IMAGE], environment.base) or wanted[IMAGE]
    # Apptainer takes all others that are no URL as paths, too
    is_path = image.startswith(_LIKE_A_PATH) or (tool in ('apptainer', 'singularity') and '://' not in image)
    box = Box(program, image, is_path, task.sandbox, tuple(_all_binds(task, environment)),
              wanted.get(GPU, ''), tuple(filter(_IDENTIFIER.match, description['environment'])),
              scratch=_scratch(environment.base), user=(os.getuid(), os.getgid()),
              login='' if 'USER' in environment.base else _login(), peers=_peers(task),
              tag=f'{task.uid}.{os.urandom(6).hex()}')
    if box.is_path and '$' not in image:
        launchers = environment.context.launchers
        here = launchers is None or all(launchers.is_here(slot['node_index']) for slot in task.slots or ())
        box = _checked(box, tool, os.path.join(task.sandbox, image), here=here)
    command = _COMMANDS[tool](box)
    inside = copy(task)
    inside.description = Description({
        **description, 'executable': command.words[0],
        'arguments': [*command.words[1:], *_program(description, task.sandbox, box)], 'literal_arguments': False,
        'environment': {**values_of(description), **command.environment}})
    return inside


def _program(description: Mapping[str, Any], sandbox: str, box: Box) -> list[str]:
    """Return the program of a task and its arguments, to be expanded; the shell of the image reads a command line."""
    executable: str = description['executable']
    in_image = box.is_path and executable.startswith('/') and os.path.exists(box.image + executable)
    if in_image or not has_command(description, sandbox):
        return texts_of(description)
    line = f'{executable} "$@"' if description['arguments'] else executable
    return ['/bin/sh', '-c', escaped(line), 'sh', *arguments_of(description)]


def _tool(task: AgentTask, environment: TaskEnvironment) -> tuple[str, str]:
    """Return the name of the tool, and its program: a path, or a name if commands of the task may change PATH."""
    description = task.description
    wanted = description['container'].get(TOOL) or environment.context.container_tool
    search_path = environment.search_path
    if wanted and any(description[name] for name in _COMMANDS_BEFORE):
        return wanted, PROGRAMS.get(wanted, wanted)
    for tool in (wanted,) if wanted else TOOLS:
        try:
            return tool, environment.programs.find(PROGRAMS.get(tool, tool), search_path, task.sandbox)
        except LaunchRefused:
            continue
    names = ', '.join(PROGRAMS.get(tool, tool) for tool in ((wanted,) if wanted else TOOLS))
    raise LaunchRefused(f'{task.uid} has a container, but the node has no container tool ({names} in PATH '
                        f'{search_path}): install it, or name another one as `tool` of the container')


def _peers(task: AgentTask) -> int:
    """Return the largest number of ranks on a node; 0 if they are not MPI processes."""
    if not is_mpi(task):
        return 0
    return max(Counter(place.index for place in places(task)).values(), default=int(task.description['ranks']))


def _checked(box: Box, tool: str, path: str, *, here: bool) -> Box:
    """Return the box with the absolute path of its image, and prepare that; on other hosts, it may be another one."""
    if not os.path.exists(path):
        if here:
            raise LaunchRefused(f'the image of the container does not exist: {path}')
        return box
    if tool == 'charliecloud' and os.path.isdir(path):
        for bind in box.binds:
            _make_mount_point(path, bind)
        return box._replace(image=path, has_variables=os.path.exists(os.path.join(path, _IMAGE_VARIABLES)))
    return box._replace(image=path)


def _make_mount_point(image: str, bind: Bind) -> None:
    """Create an empty directory or file in an image, where `ch-run` can mount a path of the node."""
    # it mounts `/tmp` before
    target = image + bind.target
    if '$' in bind.source + target or f'{bind.target}/'.startswith(f'{TMP}/') or os.path.exists(target):
        return
    if not f'{os.path.realpath(target)}/'.startswith(f'{os.path.realpath(image)}/'):
        raise LaunchRefused(f'ch-run cannot mount {bind.source} at {target}: a part of that path is a symbolic link '
                            f'out of the image')
    try:
        is_file = os.path.exists(bind.source) and not os.path.isdir(bind.source)
        os.makedirs(os.path.dirname(target) if is_file else target, exist_ok=True)
        if is_file:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
    except OSError as error:
        raise LaunchRefused(f'ch-run needs {bind.target} in the image {image} to mount {bind.source}, and it cannot be '
                            f'created: {error.strerror}') from error


def _all_binds(task: AgentTask, environment: TaskEnvironment) -> Iterator[Bind]:
    """Yield the sandboxes, TMPDIR and the binds of the description; one that lies in another only if it differs."""
    context, wanted = environment.context, task.description['container']
    known: list[Bind] = []
    for path in (context.pilot_sandbox, task.sandbox, _scratch(environment.base)):
        if any(separator in path for separator in _SEPARATORS):
            raise LaunchRefused(f'containers cannot mount a path with a colon or a comma: {path}')
        if path and not any(f'{path}/'.startswith(f'{bind.source}/') for bind in known):
            known.append(Bind(path, path))
    yield from known
    yield from (Bind(*parts_of(text)) for text in wanted.get(BINDS, ()))


def _scratch(variables: Mapping[str, Any]) -> str:
    path = str(variables.get('TMPDIR', ''))
    return path if path.startswith('/') and path.rstrip('/') != TMP else ''


def _login() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
