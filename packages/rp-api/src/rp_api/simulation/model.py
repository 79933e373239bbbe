"""Latency models of platforms: the times that a simulation does not compute itself, as a few meaningful numbers.

Each latency is a `Cost`, whose mean may grow with the number of nodes of the pilot and with the number of tasks that
the launcher handles at that time. Times are in seconds, rates per second. Models are data: the shipped ones are files
in `models`, and any JSON file of that form can be used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from random import Random
from typing import Any

from rp_api.errors import DescriptionError

DIRECTORY = Path(__file__).parent / 'models'
DEFAULT = 'ours'


def _normal(random: Random, mean: float, deviation: float) -> float:
    return max(0.0, random.normalvariate(mean, deviation))


def _lognormal(random: Random, mean: float, deviation: float) -> float:
    variance = math.log1p((deviation / mean) ** 2)
    return random.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance))


def _uniform(random: Random, mean: float, deviation: float) -> float:
    half = deviation * math.sqrt(3)
    return max(0.0, random.uniform(mean - half, mean + half))


EULER = 0.5772156649015329
"""The mean of the standard Gumbel distribution."""


def _gumbel(random: Random, mean: float, deviation: float) -> float:
    scale = deviation * math.sqrt(6) / math.pi
    return max(0.0, mean - scale * (EULER + math.log(random.expovariate(1.0))))


SHAPES: dict[str, Callable[[Random, float, float], float]] = {
    'lognormal': _lognormal, 'normal': _normal, 'uniform': _uniform, 'gumbel': _gumbel}
"""Distributions by name, cut off at 0. `gumbel` is that of the slowest of many, such as the ranks of a task."""


@dataclass(frozen=True)
class Cost:
    """A time in seconds with the mean `constant + per_node * nodes + per_task * tasks`.

    `spread` is the standard deviation as a fraction of the mean, `shape` the name of the distribution.
    """

    constant: float = 0.0
    per_node: float = 0.0
    """Seconds for each node of the pilot."""
    per_task: float = 0.0
    """Seconds for each task that the launcher handles at that time, unless noted otherwise."""
    spread: float = 0.0
    shape: str = 'lognormal'

    def __post_init__(self) -> None:
        for name in ('constant', 'per_node', 'per_task', 'spread'):
            _not_negative(f'cost.{name}', getattr(self, name))
        if self.shape not in SHAPES:
            raise DescriptionError(f'cost.shape is {self.shape!r}, allowed are {", ".join(SHAPES)}')

    def mean(self, nodes: int = 0, tasks: int = 0) -> float:
        """Return the mean time."""
        return self.constant + self.per_node * nodes + self.per_task * tasks

    def draw(self, random: Random, nodes: int = 0, tasks: int = 0) -> float:
        """Draw a random time."""
        mean = self.constant + self.per_node * nodes + self.per_task * tasks
        return SHAPES[self.shape](random, mean, self.spread * mean) if self.spread and mean else mean


@dataclass(frozen=True)
class Model:
    """The latencies and limits of a platform and its launcher."""

    name: str = ''
    source: str = ''
    """The source of the numbers."""
    queue: Cost = field(default_factory=Cost)
    """From the submission of a pilot until it gets its nodes: the wait in the batch queue."""
    bootstrap: Cost = field(default_factory=Cost)
    """From then until its agent accepts tasks."""
    placement: Cost = field(default_factory=Cost)
    """The scheduler's time to place a task; tasks are placed one after the other."""
    search: Cost = field(default_factory=Cost)
    """The scheduler's time for a search that finds no room."""
    lookahead: int = 0
    """Number of waiting tasks that are tried in vain before a pass ends, for a scheduler that works in passes and
    hands on its placements at the end of each; 0 for the scheduler of this system."""
    launch: Cost = field(default_factory=Cost)
    """From the launcher's receipt of a task until its program runs."""
    first_launch: Cost = field(default_factory=Cost)
    """Additional time of the first launch on a node."""
    storage: Cost = field(default_factory=Cost)
    """The file system's time for a launch, which precedes it; launches of all launchers are serialised. `per_task`
    counts the tasks that were launched before."""
    acknowledge: Cost = field(default_factory=Cost)
    """From the end of the program until the agent is notified, and frees the task's resources."""
    teardown: Cost = field(default_factory=Cost)
    """From the request to end the pilot until its nodes are released."""
    launch_rate: float = 0.0
    """Tasks that a launcher accepts per second, one after the other; 0 for no limit."""
    concurrent: int = 0
    """Maximum number of tasks of a launcher at a time; 0 for no limit."""
    launching: int = 0
    """Maximum number of tasks that a launcher launches at a time; 0 for no limit."""
    acknowledge_rate: float = 0.0
    """Ends of programs that a launcher processes per second, one after the other, before acknowledging them; 0 for no
    limit."""
    launch_method: str = ''
    """Launch method, if it differs from the platform definition; a method with DVMs divides the nodes."""
    launchers: int = 0
    """Number of launchers that share the nodes; 0 for the number of the launch method and platform."""
    lost_launchers: int = 0
    """Number of launchers, chosen at random, that fail and cannot be restarted."""
    launcher_life: Cost = field(default_factory=Cost)
    """From the start of these launchers until they fail."""
    failures: float = 0.0
    """Fraction of tasks that fail at launch."""
    call_rate: float = 0.0
    """Function calls that a RAPTOR master hands out per second, one after the other; 0 for no limit."""
    call_gap: float = 0.0
    """Seconds of a RAPTOR rank between two calls."""

    def __post_init__(self) -> None:
        for name in ('launch_rate', 'acknowledge_rate', 'failures', 'call_rate', 'call_gap'):
            _not_negative(f'model.{name}', getattr(self, name))
        for name in ('concurrent', 'launching', 'launchers', 'lost_launchers', 'lookahead'):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise DescriptionError(f'model.{name} is {value!r}, allowed are whole numbers from 0 on')
        for name in ('name', 'source', 'launch_method'):
            if not isinstance(getattr(self, name), str):
                raise DescriptionError(f'model.{name} is {getattr(self, name)!r}, allowed are names')
        if self.failures > 1:
            raise DescriptionError(f'model.failures is {self.failures!r}, allowed are shares from 0 to 1')

    def changed(self, **values: Any) -> Model:
        """Return a copy with these attributes changed; costs may be given as plain data."""
        return replace(self, **_attributes(values))

    def as_dict(self) -> dict[str, Any]:
        """Return the model as plain data, in the form of a file."""
        return asdict(self)


def load_model(name: str = DEFAULT) -> Model:
    """Return the shipped model of that name, or the model in a file (a path that ends in `.json`)."""
    if name.endswith('.json'):
        path = Path(name)
    else:
        path = DIRECTORY / f'{name}.json'
        if not path.exists():
            raise DescriptionError(f'there is no model {name!r}, there are {", ".join(list_models())}, or name a file '
                                   '*.json')
    try:
        values = json.loads(path.read_text())
    except ValueError as error:
        raise DescriptionError(f'{path} is not valid JSON: {error}') from None
    return make_model({'name': path.stem, **values} if isinstance(values, dict) else values)


def list_models() -> list[str]:
    """Return the names of the shipped models."""
    return sorted(path.stem for path in DIRECTORY.glob('*.json'))


def make_model(values: Any) -> Model:
    """Return the model from plain data; raise DescriptionError if it is invalid."""
    if not isinstance(values, Mapping):
        raise DescriptionError(f'a model is a dict of its attributes, not {values!r}')
    return Model(**_attributes(values))


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    known = {each.name: each.type for each in fields(Model)}
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise DescriptionError(f'a model has no attribute {name!r}, there are {", ".join(known)}')
        found[name] = _cost(name, value) if known[name] == 'Cost' else value
    return found


def _cost(name: str, value: Any) -> Cost:
    """Return a cost from plain data; a number is a constant cost."""
    if isinstance(value, Cost):
        return value
    if isinstance(value, Mapping):
        try:
            return Cost(**value)
        except TypeError:
            known = ', '.join(each.name for each in fields(Cost))
            raise DescriptionError(f'model.{name} is {dict(value)!r}, allowed in it are {known}') from None
    _not_negative(f'model.{name}', value)
    return Cost(constant=value)


def _not_negative(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise DescriptionError(f'{name} is {value!r}, allowed are numbers from 0 on')
