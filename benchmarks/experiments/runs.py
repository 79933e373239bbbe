"""The runs of experiments 1 to 4: sizes of Table I and of the text, with the model of the paper's system on them."""

from __future__ import annotations

from dataclasses import dataclass

from experiments import workloads
from rp_client.simulation import Model, Platform, Workload, load_model

TITAN_CORES = 16
SUMMIT_CORES, SUMMIT_GPUS = 42, 6
AGENT_NODES = 1
"""Of a pilot on Summit, one node is the agent's."""
DVM_NODES = 256
"""At most, on Summit."""

WEAK = (32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Tasks of the runs of experiment 1, with 32 cores for each."""
STRONG = (16_384, 32_768, 65_536)
"""Cores of the runs of experiment 2."""
STRONG_TASKS = 16_384
REPEATS = 3
"""Number of simulations per run of experiments 1 and 2; the paper gives means, too, of two runs of each size."""
AVERAGES = {'1.32-128': ('1.32', '1.64', '1.128')}
"""Runs of which the paper reports one TTX, the average."""


@dataclass(frozen=True)
class Run:
    """One run of an experiment."""

    name: str
    """As in `paper.csv`."""
    title: str
    tasks: int
    platform: Platform
    """The nodes on which tasks run."""
    allocated: int
    """The nodes that the pilot had, those included that are lost or the agent's."""
    workload: Workload
    model: Model
    """Of the paper's system."""
    generations: int = 1
    repeats: int = 1
    """Number of simulations, each with another seed; the figures are means."""

    @property
    def cores(self) -> int:
        """On which tasks run."""
        return self.platform.nodes * int(self.platform.definition['cores_per_node'])

    def ours(self) -> Model:
        """The same launcher and machine, and the scheduler of this system, as fast as it was measured."""
        measured = load_model('ours')
        return self.model.changed(name='ours', placement=measured.placement, search=measured.search, lookahead=0)


def all_runs() -> list[Run]:
    """The runs of experiments 1 to 4, in the order of the paper."""
    return [*weak(), *strong(), *heterogeneous()]


def weak() -> list[Run]:
    """Experiment 1: as many tasks as fit, on more and more nodes of Titan."""
    return [_titan(f'1.{tasks}', tasks, tasks * 32) for tasks in WEAK]


def strong() -> list[Run]:
    """Experiment 2: the same tasks on more and more nodes of Titan."""
    return [_titan(f'2.{cores}', STRONG_TASKS, cores) for cores in STRONG]


def heterogeneous() -> list[Run]:
    """Experiments 3 and 4: heterogeneous tasks on a quarter of Summit and on most of it."""
    return [
        _summit('3.1024', 3_098, 1, nodes=1024),
        _summit('3.4097', 12_276, 1, nodes=4097, lost_dvms=2, failures=1148 / 12_276),
        _summit('4.1024', 24_784, 8, nodes=1024),
        _summit('4.4097', 24_552, 2, nodes=4097),
    ]


def _titan(name: str, tasks: int, cores: int) -> Run:
    nodes = cores // TITAN_CORES
    generations = tasks * 32 // cores
    return Run(name, f'{tasks:,} tasks, {cores:,} cores', tasks, Platform.of(nodes, TITAN_CORES), nodes,
               workloads.bpti(tasks), load_model('paper-titan-orte'), generations, REPEATS)


def _summit(name: str, tasks: int, generations: int, nodes: int, lost_dvms: int = 0, failures: float = 0.0) -> Run:
    """A run on Summit; nodes of lost virtual machines are paid for and not used, and some launches fail."""
    usable = nodes - AGENT_NODES
    count = -(-usable // DVM_NODES)
    machines = [usable // count + (number < usable % count) for number in range(count)]
    model = load_model('paper-summit-prrte').changed(launchers=count - lost_dvms, failures=failures)
    platform = Platform.of(sum(machines[:count - lost_dvms]), SUMMIT_CORES, SUMMIT_GPUS)
    return Run(name, f'{tasks:,} tasks, {nodes:,} nodes', tasks, platform, nodes,
               workloads.heterogeneous(tasks, machines, generations, lost_dvms), model, generations)
