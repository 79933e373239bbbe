"""What the tests of instances share: a supervisor on a loop, a launcher made of a script, and what was decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from rp_agent.executor.backends.instance_supervisor import InstanceSupervisor
from rp_agent.executor.backends.launcher import InstanceLauncher, InstanceNode, Startup
from rp_agent.executor.launching.environment import NodePorts
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer

TIMEOUT = 30.0


class ScriptLauncher(InstanceLauncher):
    """Instances that run a shell script; `$0` is their number."""

    NAME: ClassVar[str] = 'SCRIPT'

    def __init__(self, script: str, seconds_to_start: float = 30.0, seconds_to_stop: float = 5.0) -> None:
        self.script = script
        self.SECONDS_TO_START = seconds_to_start   # type: ignore[misc]
        self.SECONDS_TO_STOP = seconds_to_stop     # type: ignore[misc]

    def startup(self, number: int, nodes: Sequence[InstanceNode]) -> Startup:
        return Startup(('sh', '-c', self.script, str(number), *(node.name for node in nodes)))

    def address(self, line: str) -> str:
        return line.removeprefix('address ') if line.startswith('address ') else ''

    def is_ready(self, line: str) -> bool:
        return line == 'ready'


class SupervisorHarness(NodePorts):
    """A supervisor, its loop, and what it has decided."""

    def __init__(self, path: Path, launcher: InstanceLauncher, parts: Sequence[range], *,
                 environment: dict[str, str] | None = None) -> None:
        self.loop = Loop()
        self.profile = path / 'agent_0.prof'
        self.tracer = Tracer(self.profile, 'agent_0')
        count = parts[-1].stop
        self.supervisor = InstanceSupervisor(self.loop, self.tracer, 'pilot.0000', launcher, parts,
                                             [InstanceNode(f'n{index}', 4) for index in range(count)], str(path),
                                             environment or {'PATH': '/usr/bin:/bin'}, self, self)
        self.launched: list[tuple[str, int, str]] = []
        self.abandoned: list[tuple[str, str]] = []
        self.again: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.losses: list[tuple[range, str]] = []

    def until(self, condition: Callable[[], object]) -> None:
        """Run the loop until the condition holds."""
        def look() -> None:
            self.supervisor.check()
            if condition():
                self.loop.stop()
            else:
                self.loop.call_later(0.005, look)

        timer = self.loop.call_later(TIMEOUT, self._too_late)
        look()
        self.loop.run()
        timer.cancel()

    def stop(self) -> None:
        """End all instances in order."""
        stopped: list[bool] = []
        self.supervisor.stop(lambda: stopped.append(True))
        self.until(lambda: stopped)

    def close(self) -> None:
        self.supervisor.close()
        self.tracer.close()
        self.loop.close()

    def events(self) -> list[tuple[str, str]]:
        """The events of instances that were recorded, with their messages."""
        self.tracer.flush()
        rows = [line.split(',') for line in self.profile.read_text().splitlines() if ',pilot.0000,' in line]
        return [(row[1], row[6]) for row in rows]

    def launch(self, uid: str, index: int, address: str) -> None:
        self.launched.append((uid, index, address))

    def abandon(self, uid: str, reason: str) -> None:
        self.abandoned.append((uid, reason))

    def displace(self, uid: str, reason: str) -> None:
        self.again.append((uid, reason))

    def refuse(self, uid: str, reason: str) -> None:
        self.refused.append((uid, reason))

    def nodes_lost(self, nodes: range, reason: str) -> None:
        self.losses.append((nodes, reason))

    def _too_late(self) -> None:
        raise AssertionError(f'waited in vain: launched {self.launched}, abandoned {self.abandoned}, placed again '
                             f'{self.again}, refused {self.refused}, lost {self.losses}, events {self.events()}')
