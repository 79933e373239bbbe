"""What the tests of the executors FLUX and DRAGON share: those executors, with programs that answer as Flux and Dragon
do, or the real ones in the directories that TEST_FLUX and TEST_DRAGON name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from executor_support import Harness
from launch_support import is_gone
from leftovers import must_end, open_descriptors

from rp_agent.executor.backends.dragon.executor import DragonKind
from rp_agent.executor.backends.flux.executor import FluxInstances, FluxKind, FluxLauncher
from rp_agent.executor.backends.jobs import JobExecutor
from rp_agent.executor.backends.launcher import InstanceNode
from rp_api.system import processes

REAL_FLUX = os.environ.get('TEST_FLUX', '')
REAL_DRAGON = os.environ.get('TEST_DRAGON', '')
"""Its Python has pyzmq as well."""

FLUX_PATH, DRAGON_PATH = (f'{real or Path(__file__).with_name(stand_in)}:{os.environ["PATH"]}' for real, stand_in in (
    (REAL_FLUX, 'flux_stand_in'), (REAL_DRAGON, 'dragon_stand_in')))

CORES = len(os.sched_getaffinity(0)) if REAL_FLUX else 4
"""Of an instance."""


class BackendHarness(Harness):
    """An executor with instances on this host."""

    executor: JobExecutor

    def instances(self) -> list[int]:
        """The process numbers of the instances that run."""
        return [live.process.process.pid for live in self.executor.supervisor._live.values()
                if live.process.process is not None]

    def files(self) -> list[str]:
        """What its instances have left outside of the pilot's sandbox."""
        raise NotImplementedError


class FluxHarness(BackendHarness):
    """A Flux executor with so many instances, each on one node of four cores, whose brokers use a directory."""

    def __init__(self, path: Path, brokers: str, instances: int = 1, launcher: FluxInstances | None = None,
                 **arguments: Any) -> None:
        parts = tuple(range(index, index + 1) for index in range(instances))

        def make(uid: str, tracer: Any, loop: Any, context: Any) -> JobExecutor:
            nodes = [InstanceNode('localhost', CORES)] * instances
            return JobExecutor(uid, tracer, loop, context, FluxKind(launcher or FluxLauncher()), parts, nodes)

        super().__init__(path, make, PATH=FLUX_PATH, TMPDIR=brokers, **arguments)

    def task(self, uid: str = 'task.000000', **description: Any) -> Any:
        task = super().task(uid, **description)
        task.slots = None   # Flux finds room
        return task

    def files(self) -> list[str]:
        return os.listdir(self.context.base_env['TMPDIR'])


class DragonHarness(BackendHarness):
    """A Dragon executor."""

    def __init__(self, path: Path, **environ: Any) -> None:
        def make(uid: str, tracer: Any, loop: Any, context: Any) -> JobExecutor:
            kind = DragonKind(loop, 'tcp://127.0.0.1:*', single=True)
            return JobExecutor(uid, tracer, loop, context, kind, (range(1),), [InstanceNode('localhost', 4)])

        self._others = set(Path('/dev/shm').glob('DD*'))
        super().__init__(path, make, PATH=DRAGON_PATH, DRAGON_DEFAULT_SEG_SZ=str(2**28),
                         STAND_IN_PYTHONPATH=os.pathsep.join(filter(None, sys.path)), **environ)
        self.patience = 120.0 if REAL_DRAGON else 30.0

    def files(self) -> list[str]:
        if REAL_DRAGON:
            return [] if self._others else list(map(str, Path('/dev/shm').glob('DD*')))
        segments = Path(self.context.own_sandbox, 'segments').read_text().split()
        assert len(segments) == 2   # one of each runtime
        return [segment for segment in segments if Path(segment).exists()]


AnyBackend = TypeVar('AnyBackend', bound=BackendHarness)


@contextmanager
def backends(kind: Callable[..., AnyBackend], *first: Any) -> Iterator[Callable[..., AnyBackend]]:
    """Return a function that makes harnesses of this kind; at the end, nothing of them may be left."""
    before = open_descriptors()
    made: list[AnyBackend] = []

    def make(**arguments: Any) -> AnyBackend:
        made.append(kind(*first, **arguments))
        return made[-1]

    yield make
    for harness in made:
        instances = harness.instances()
        harness.close()
        assert all(map(is_gone, instances))
        must_end(processes.sweep({'RP_SESSION_ID': harness.context.session_id}, 0))
    assert open_descriptors() <= before
    if REAL_DRAGON and kind is DragonHarness:
        subprocess.run([f'{REAL_DRAGON}/dragon-cleanup'], capture_output=True, timeout=60)


def twice(path: Path) -> dict[str, Any]:
    """The attributes of a task that never ends when it runs for the first time."""
    script = path / 'twice.sh'
    script.write_text(f'echo $$ >>{path}/pids\ntest $(wc -l <{path}/pids) = 2 || exec sleep 1000\n')
    return {'executable': '/bin/sh', 'arguments': [str(script)]}
