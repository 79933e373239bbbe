"""The executor DRAGON: ranks of tasks are processes of a Dragon runtime, on the nodes that the scheduler chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import zmq

from rp_agent.executor.backends.dragon import dragon_runner
from rp_agent.executor.backends.instance_supervisor import InstanceSupervisor
from rp_agent.executor.backends.jobs import JobExecutor
from rp_agent.executor.backends.launcher import InstanceLauncher, InstanceNode, Startup, nodes_of
from rp_agent.executor.backends.process import Processes
from rp_agent.executor.backends.runner import Broken, JobKind, News, Runner
from rp_agent.executor.launching.environment import PilotContext
from rp_agent.executor.launching.launchers import is_mpi
from rp_agent.lookup import LaunchRefused
from rp_agent.network import listen_address
from rp_agent.task import AgentTask
from rp_api.loop.event_loop import Loop
from rp_api.transport.access import AccessPoint
from rp_api.transport.keys import make_server
from rp_profiling.write.tracer import Tracer

_BATCH = ('SLURM', 'PBSPRO')
"""Resource managers from whose jobs Dragon gets the nodes itself."""

_CONNECTED = 'rp dragon runner '
"""Prefix of the line that reports a connected runner to the supervisor."""

_BELOW_A_SHELL = '/bin/sh', '-c', '"$@"; exit "$?"', 'dragon'
"""Dragon creates its own process group; a session leader cannot do so, and Dragon then hangs."""


class DragonKind(JobKind):
    """The Dragon parts of the executor; `single` if the pilot has only this host."""

    NAME: ClassVar[str] = 'DRAGON'
    RANK_VARIABLES: ClassVar[tuple[str, ...]] = ('RP_RANK',)
    BINDS: ClassVar[bool] = False

    def __init__(self, loop: Loop, address: str, *, single: bool, by_ssh: bool = False) -> None:
        self._link = RunnerLink(loop, address)
        self._single = single
        self.launcher = DragonExecutor(self._link.invitation, single=single, by_ssh=by_ssh)

    def request(self, task: AgentTask, argv: tuple[str, ...], environment: dict[str, str],
                output: tuple[str, str]) -> dict[str, Any]:
        """Return the command, environment, directory, output and hosts of the ranks."""
        if is_mpi(task):
            raise LaunchRefused('DRAGON starts plain processes, not ranks of an MPI program: set use_mpi=False, or use '
                                'another platform')
        hosts = [slot['node_name'] for slot in task.slots or ()]
        hosts = [''] * task.processes if self._single else hosts[:task.processes]
        return {'argv': argv, 'environment': environment, 'directory': task.sandbox, 'output': output, 'hosts': hosts}

    def runner(self, started: Processes, address: str, news: News, broken: Broken) -> Runner:
        """Return the connection to the runner in that instance."""
        return LinkRunner(self._link, int(address), news)

    def begin(self, supervisor: InstanceSupervisor) -> None:
        """Report runners that have connected; output of programs in Dragon may get lost."""
        self._link.supervisor = supervisor

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def executor(uid: str, tracer: Tracer, loop: Loop, context: PilotContext, options: Mapping[str, Any]) -> JobExecutor:
    """Create the executor DRAGON of a pilot."""
    assert context.launchers is not None
    platform: Mapping[str, Any] = context.launchers.platform
    setting = context.launchers.setting
    names = tuple(setting['nodes'])
    other = next((name for position, name in enumerate(names) if not context.launchers.is_here(position)), '')
    single = not other
    address = f'{"tcp://127.0.0.1" if single else listen_address(platform, other)}:*'
    kind = DragonKind(loop, address, single=single, by_ssh=platform['resource_manager'] not in _BATCH)
    # a runtime uses all nodes of its job
    return JobExecutor(uid, tracer, loop, context, kind, (range(len(names)),), nodes_of(setting))


class RunnerLink:
    """A socket to which the runners of all instances connect, each with its own keys."""

    def __init__(self, loop: Loop, address: str) -> None:
        self._loop = loop
        self._point = AccessPoint(loop)
        self._socket: zmq.Socket[bytes] = self._point.context.socket(zmq.ROUTER)
        make_server(self._socket, self._point.keys)
        self._socket.sndhwm = 0
        self._socket.bind(address)
        self._address = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self._listeners: dict[bytes, News] = {}
        self.supervisor: InstanceSupervisor | None = None
        loop.add_socket(self._socket, self._receive)

    def invitation(self, number: int) -> str:
        """Return the address and the keys with which a runner of that number connects; they are secret."""
        return json.dumps({'number': number, **self._point.admit(self._address).as_dict()})

    def listen(self, number: int, news: News) -> None:
        """Call `news` with all messages of that runner."""
        self._listeners[str(number).encode()] = news

    def send(self, number: int, message: Mapping[str, Any]) -> None:
        """Send a message to a runner that has connected; it is lost if the runner has ended."""
        self._socket.send_multipart([str(number).encode(), json.dumps(message).encode()])

    def forget(self, number: int) -> None:
        """Ignore further messages of that runner."""
        self._listeners.pop(str(number).encode(), None)

    def close(self) -> None:
        """Close the socket, and release all resources."""
        self._loop.remove_socket(self._socket)
        self._socket.close(500)
        self._point.close()

    def _receive(self) -> None:
        while self._socket.poll(0):
            sender, text = self._socket.recv_multipart()
            message = json.loads(text)
            listener = self._listeners.get(sender)
            if 'hello' in message:
                self._socket.send_multipart([sender, b'{}'])
                if self.supervisor is not None:
                    self.supervisor.take_line(int(sender), f'{_CONNECTED}{int(sender)}')
            elif listener is not None:
                listener(message)


class DragonExecutor(InstanceLauncher):
    """Runtimes of the `dragon` in PATH; `single` if the pilot has only this host."""

    NAME: ClassVar[str] = 'DRAGON'
    SECONDS_TO_START: ClassVar[float] = 120.0
    SECONDS_TO_STOP: ClassVar[float] = 20.0
    STOP_SIGNAL: ClassVar[int] = 0   # it ends with its runner
    SEGMENTS: ClassVar[str] = 'DD'   # up to 4 GiB each

    def __init__(self, invitation: Callable[[int], str], *, single: bool, by_ssh: bool = False) -> None:
        self._invitation = invitation
        self._single = single
        self._by_ssh = by_ssh

    def startup(self, number: int, nodes: Sequence[InstanceNode]) -> Startup:
        """Return the start of a runtime with a runner."""
        name = f'dragon.{number:04d}.json'
        if self._single:
            where: tuple[str, ...] = ('--single-node-override',)
        elif self._by_ssh:
            where = ('--wlm', 'ssh', '--hostlist', ','.join(node.name for node in nodes))
        else:
            where = ('--nodes', str(len(nodes)))
        command = 'dragon', *where, str(Path(dragon_runner.__file__)), name
        return Startup((*_BELOW_A_SHELL, *command), {name: self._invitation(number)})

    def address(self, line: str) -> str:
        """Return the number of the runner in the line that reports its connection."""
        return line.removeprefix(_CONNECTED) if line.startswith(_CONNECTED) else ''

    def is_ready(self, line: str) -> bool:
        """Return whether the line reports a connected runner, which can run tasks."""
        return bool(self.address(line))


class LinkRunner:
    """The connection to a runner in an instance, over the link."""

    def __init__(self, link: RunnerLink, number: int, news: News) -> None:
        self._link = link
        self._number = number
        link.listen(number, news)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message at once."""
        self._link.send(self._number, message)

    def close(self) -> None:
        """End the runner, if it still runs, and ignore its further messages."""
        self._link.send(self._number, {'end': True})
        self._link.forget(self._number)
