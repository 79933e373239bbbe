"""Launch of the sub-agents on the nodes of a pilot, by a launch method of its platform.

One launcher starts all of them if the method can start one process per node; otherwise there is one launcher for each.
Sub-agents read their configuration from a file that only its owner can read. `node_agent` finds the node of a
sub-agent, and a `Reader` detects the end of one of many.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from shlex import join
from typing import IO, Any

from rp_agent.bootstrap import stage_2
from rp_agent.components.layout import NodeHost
from rp_agent.executor.launching.launchers import without_inputs
from rp_agent.launch_method.base import Job, LaunchMethod, Rank, Setting
from rp_agent.launch_method.find import detect_one
from rp_agent.launch_method.system import LaunchSystem
from rp_agent.nodes.child import NodeProcess
from rp_agent.resource_manager.base import Allocation
from rp_agent.resource_manager.system import short
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop
from rp_api.system import private, signals

NAME = 'agent_n'
"""Name of these sub-agents in `bootstrap_2.sh`, and prefix of the names of their files."""

OUTPUT = f'{NAME}.err'

_FORK = 'FORK'
_MPI = 'MPI', 'IBRUN'   # prefixes of launch methods that end all processes when a node is lost
_MARK = 'RP_SUB_AGENT_ENDED'
_READ = 65536

# a batch system that signals the agent signals all processes: the sub-agent ignores it, and the script survives it
_SCRIPT = """#!/bin/sh
# Starts the sub-agent of the node that this runs on, and tells the agent when it has ended.
trap : INT TERM HUP USR1 USR2 ALRM XCPU
{command} 2>&1
echo "{mark} $? ${{SLURMD_NODENAME:-$(uname -n)}} {rank}"
"""

Ended = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class NodeLaunch:
    """A launcher, and the positions of the nodes on each of which it starts a sub-agent."""

    name: str
    positions: tuple[int, ...]
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cancel: tuple[signal.Signals, ...]
    rank_variables: tuple[str, ...]


def launches(platform: Mapping[str, Any], allocation: Allocation, hosts: Sequence[NodeHost],
             sandbox: str) -> list[NodeLaunch]:
    """Return the launchers to start for these sub-agents.

    Writes the files of the launchers to the sandbox, and `bootstrap_2.sh` if no bootstrap has done so. Raises
    `PlatformError`, with all reasons, if no launch method can start the sub-agents.
    """
    ranks = tuple(Rank(allocation.names[host.position], host.position) for host in hosts)
    every = Job(NAME, sandbox, ranks, cores_per_rank=allocation.cores_per_node)
    single = [Job(f'{NAME}.{rank.index:04d}', sandbox, (rank,), cores_per_rank=allocation.cores_per_node)
              for rank in ranks]
    method, together = _choose(platform, _setting(platform, allocation), every, single)
    program = ('/bin/sh', _script(sandbox), NAME, os.path.join(sandbox, f'{NAME}.cfg'))
    if together:
        path = os.path.join(sandbox, f'{NAME}.sh')
        with open(path, 'w', encoding='utf-8', errors='surrogateescape') as file:
            file.write(script(program, method.rank_variables))
        name = hosts[0].name if len(hosts) == 1 else method.NAME
        return [_launch(method, name, every, ('/bin/sh', path))]
    return [_launch(method, host.name, job, (*program, str(host.position)))
            for job, host in zip(single, hosts, strict=True)]


def launch_of_agent(platform: Mapping[str, Any], allocation: Allocation, name: str, sandbox: str) -> NodeLaunch:
    """Return the launcher to start for the agent with the configuration `<name>.cfg` on the first node.

    Raises `PlatformError`, with all reasons, if no launch method can start it.
    """
    if os.environ.get('RP_TUNNEL'):
        raise PlatformError("agent configuration: target is 'node', allowed: 'local' on this platform, because the "
                            f'tunnel to the application (forward_tunnel_endpoint) ends on {os.uname().nodename}')
    directory, own = os.path.split(os.path.join(sandbox, name))
    job = Job(own, directory, (Rank(allocation.names[0], 0),), cores_per_rank=allocation.cores_per_node)
    method, _ = _choose(platform, _setting(platform, allocation), job, [job])
    return _launch(method, method.NAME, job, ('/bin/sh', _script(sandbox), name))


def write_config(config: Mapping[str, Any], sandbox: str) -> None:
    """Write the configuration of the sub-agents, which holds keys."""
    private.write_file(os.path.join(sandbox, f'{NAME}.cfg'), json.dumps(config).encode())


def start(launch: NodeLaunch, sandbox: str, output: str = OUTPUT, stdin: int = subprocess.DEVNULL,
          stdout: int | None = None) -> NodeProcess:
    """Start a launcher; raise `PlatformError` if it cannot be started.

    Its output goes to a file, standard output to `stdout` if it is given, or, with several sub-agents, to a
    `Reader`. The launcher stays in the agent's session, by which the executor recognises children that are
    not its own.
    """
    output = os.path.join(sandbox, output)
    with open(output, 'ab') as file:
        out = stdout or (subprocess.PIPE if len(launch.positions) > 1 else file)
        try:
            process = subprocess.Popen(launch.argv, stdin=stdin, stdout=out, stderr=file, cwd=sandbox,
                                       env=launch.environment, preexec_fn=signals.ignore_warnings)
        except OSError as error:
            raise PlatformError(f'sub-agents cannot be started by {launch.argv[0]}: {error.strerror}') from error
    return NodeProcess(launch.name, process, output, launch.cancel)


def _choose(platform: Mapping[str, Any], setting: Setting, every: Job,
            single: Sequence[Job]) -> tuple[LaunchMethod, bool]:
    """Return the first launch method that can start the sub-agents, and whether one launcher starts all of them.

    Those of an MPI, with which one lost node ends all sub-agents, come last.
    """
    named = platform.get('launch_methods') or {}
    asked = platform.get('agent_launch_method')
    reasons = []
    order = sorted(named.get('order', [_FORK]), key=lambda name: name.startswith(_MPI))
    for name in [asked] if asked else order:
        try:
            method = detect_one(name, named.get(name) or {}, setting, LaunchSystem(shell=platform.get('shell', '')))
        except PlatformError as error:
            reasons.append(f'{name}: {error}')
            continue
        if not method.SHARES_NODES:
            reasons.append(f'{name}: sub-agents would occupy the nodes of the tasks, set agent_spawner to {name}')
            continue
        refusal = method.refuses(every)
        if not refusal:
            return method, len(single) > 1
        refusals = list(filter(None, map(method.refuses, single)))
        if not refusals:
            return method, False
        reasons.append(f'{name}: {refusals[0]}')
    raise PlatformError(f'the pilot has nodes on other hosts ({_some(every.ranks)}), and no launch method of the '
                        f'platform can start sub-agents there: {"; ".join(reasons)}')


def _setting(platform: Mapping[str, Any], allocation: Allocation) -> Setting:
    """Return the setting for agents: not exclusive, whatever the platform sets for tasks, which would all wait."""
    return replace(Setting.of(allocation, platform), exclusive=False)


def _launch(method: LaunchMethod, name: str, job: Job, program: Sequence[str]) -> NodeLaunch:
    command = method.command(job, program)
    for name, text in command.files.items():
        with open(os.path.join(job.sandbox, name), 'w', encoding='utf-8') as file:
            file.write(text)
    outer = (*method.rank_variables, *method.size_variables)
    environment = {name: value for name, value in without_inputs(os.environ).items() if name not in outer}
    environment |= method.environment | dict(command.environment)
    return NodeLaunch(name, tuple(rank.index for rank in job.ranks), command.argv, environment, method.CANCEL,
                  method.rank_variables)


def _script(sandbox: str) -> str:
    path = os.path.join(sandbox, stage_2.FILE)
    return path if os.path.exists(path) else stage_2.write(sandbox, os.environ)


def _some(ranks: Sequence[Rank]) -> str:
    names = [rank.node for rank in ranks[:5]]
    return ', '.join(names) + (f' and {len(ranks) - 5} more' if len(ranks) > 5 else '')


def script(command: Sequence[str], rank_variables: Sequence[str]) -> str:
    """Return the text of the script, which reads its rank from the first of these variables that is set."""
    rank = reduce(lambda rest, name: f'${{{name}-{rest}}}', reversed(rank_variables), '')
    return _SCRIPT.format(command=join(command), mark=_MARK, rank=rank)


class Reader:
    """The reader of a launcher's output: calls `ended(index, code)` for ends of sub-agents, writes the rest to a file.

    `names` are those of the nodes, in the order of the ranks. A name takes precedence over a rank, as batch systems may
    order ranks in another way. A name that several nodes have, as simulated nodes do, is ignored.
    """

    def __init__(self, loop: Loop, pipe: IO[bytes], path: str, names: Sequence[str], ended: Ended) -> None:
        self._loop = loop
        self._pipe = pipe
        self._ended = ended
        self._count = len(names)
        times = Counter(map(short, names))
        self._index = {short(name): index for index, name in enumerate(names) if times[short(name)] == 1}
        self._rest = b''
        self._file = open(path, 'ab', buffering=0)   # noqa: SIM115 - open until `close`
        os.set_blocking(pipe.fileno(), False)
        loop.add_fd(pipe.fileno(), self._read)

    def close(self) -> None:
        """Read the rest of the output, and release all resources."""
        if self._pipe.closed:
            return
        self._ended = lambda index, code: None
        while self._read():
            pass
        self._write(self._rest)
        self._loop.remove_fd(self._pipe.fileno())
        self._pipe.close()
        self._file.close()

    def _read(self) -> bool:
        """Read available output; return whether there was any."""
        try:
            data = os.read(self._pipe.fileno(), _READ)
        except BlockingIOError:
            return False
        if not data:   # all writers have ended
            self._loop.remove_fd(self._pipe.fileno())
            return False
        *lines, self._rest = (self._rest + data).split(b'\n')
        for line in lines:
            self._take(line)
        return True

    def _take(self, line: bytes) -> None:
        """Handle a line; the mark may follow the last output of a sub-agent or a prefix of the launcher."""
        said, mark, told = line.partition(_MARK.encode())
        if said or not mark:
            self._write(said + b'\n')
        code, name, rank, *_ = [*told.decode(errors='replace').split(), '', '', '']
        index = self._index.get(short(name), int(rank) if rank.isdecimal() else self._count)
        if code.isdecimal() and index < self._count:
            self._ended(index, int(code))

    def _write(self, data: bytes) -> None:
        with suppress(OSError):   # a full disk does not end the agent
            self._file.write(data)
