"""Launch of the sub-agents on the nodes of a pilot, by a launch method of its platform.

One launcher starts all of them if the method can start one process per node; otherwise there is one launcher for each.
Sub-agents read their configuration from a file that only its owner can read. `node_agent` finds the node of a
sub-agent, and `node_ends` detects the end of one of many.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rp_agent.bootstrap import stage_2
from rp_agent.components.layout import NodeHost
from rp_agent.executor.launching.launchers import without_inputs
from rp_agent.launch_method.base import Job, LaunchMethod, Rank, Setting
from rp_agent.launch_method.find import detect_one
from rp_agent.launch_method.system import System
from rp_agent.nodes import node_ends
from rp_agent.nodes.child import Child
from rp_agent.resource_manager.base import Allocation
from rp_api.errors import PlatformError
from rp_api.system import private, signals

NAME = 'agent_n'
"""Name of these sub-agents in `bootstrap_2.sh`, and prefix of the names of their files."""

OUTPUT = f'{NAME}.err'

_FORK = 'FORK'


@dataclass(frozen=True, slots=True)
class Launch:
    """A launcher, and the positions of the nodes on each of which it starts a sub-agent."""

    name: str
    positions: tuple[int, ...]
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cancel: tuple[signal.Signals, ...]
    rank_variables: tuple[str, ...]


def launches(platform: Mapping[str, Any], allocation: Allocation, hosts: Sequence[NodeHost],
             sandbox: str) -> list[Launch]:
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
            file.write(node_ends.script(program, method.rank_variables))
        name = hosts[0].name if len(hosts) == 1 else method.NAME
        return [_launch(method, name, every, ('/bin/sh', path))]
    return [_launch(method, host.name, job, (*program, str(host.position)))
            for job, host in zip(single, hosts, strict=True)]


def launch_of_agent(platform: Mapping[str, Any], allocation: Allocation, name: str, sandbox: str) -> Launch:
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


def start(launch: Launch, sandbox: str, output: str = OUTPUT, stdin: int = subprocess.DEVNULL,
          stdout: int | None = None) -> Child:
    """Start a launcher; raise `PlatformError` if it cannot be started.

    Its output goes to a file, standard output to `stdout` if it is given, or, with several sub-agents, to a
    `node_ends.Reader`. The launcher stays in the agent's session, by which the executor recognises children that are
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
    return Child(launch.name, process, output, launch.cancel)


def _choose(platform: Mapping[str, Any], setting: Setting, every: Job,
            single: Sequence[Job]) -> tuple[LaunchMethod, bool]:
    """Return the first launch method that can start the sub-agents, and whether one launcher starts all of them."""
    named = platform.get('launch_methods') or {}
    asked = platform.get('agent_launch_method')
    reasons = []
    for name in [asked] if asked else named.get('order', [_FORK]):
        try:
            method = detect_one(name, named.get(name) or {}, setting, System(shell=platform.get('shell', '')))
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


def _launch(method: LaunchMethod, name: str, job: Job, program: Sequence[str]) -> Launch:
    command = method.command(job, program)
    for name, text in command.files.items():
        with open(os.path.join(job.sandbox, name), 'w', encoding='utf-8') as file:
            file.write(text)
    outer = (*method.rank_variables, *method.size_variables)
    environment = {name: value for name, value in without_inputs(os.environ).items() if name not in outer}
    environment |= method.environment | dict(command.environment)
    return Launch(name, tuple(rank.index for rank in job.ranks), command.argv, environment, method.CANCEL,
                  method.rank_variables)


def _script(sandbox: str) -> str:
    path = os.path.join(sandbox, stage_2.FILE)
    return path if os.path.exists(path) else stage_2.write(sandbox, os.environ)


def _some(ranks: Sequence[Rank]) -> str:
    names = [rank.node for rank in ranks[:5]]
    return ', '.join(names) + (f' and {len(ranks) - 5} more' if len(ranks) > 5 else '')
