"""How long things take on a platform, as few numbers with a meaning each: what a simulation does not compute itself.

Every latency is a `Cost`, whose mean may grow with the number of nodes of the pilot and with the number of tasks that
the launcher has at that time. All times are in seconds, all rates per second. Models are data: the shipped ones are
files in `models`, and any JSON file of that form is one.
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
"""Distributions by name; what would be below 0 is 0. `gumbel` is that of the slowest of many, as of a task's ranks."""


@dataclass(frozen=True)
class Cost:
    """A time in seconds: `constant + per_node * nodes + per_task * tasks` in the mean.

    `spread` is the standard deviation as a share of the mean, `shape` the form of the distribution.
    """

    constant: float = 0.0
    per_node: float = 0.0
    """For each node of the pilot."""
    per_task: float = 0.0
    """For each task that the launcher has at that time, if nothing else is said."""
    spread: float = 0.0
    shape: str = 'lognormal'

    def __post_init__(self) -> None:
        for name in ('constant', 'per_node', 'per_task', 'spread'):
            _not_negative(f'cost.{name}', getattr(self, name))
        if self.shape not in SHAPES:
            raise DescriptionError(f'cost.shape is {self.shape!r}, allowed are {", ".join(SHAPES)}')

    def mean(self, nodes: int = 0, tasks: int = 0) -> float:
        """The time that it takes in the mean."""
        return self.constant + self.per_node * nodes + self.per_task * tasks

    def draw(self, random: Random, nodes: int = 0, tasks: int = 0) -> float:
        """The time that it takes this time."""
        mean = self.constant + self.per_node * nodes + self.per_task * tasks
        return SHAPES[self.shape](random, mean, self.spread * mean) if self.spread and mean else mean


@dataclass(frozen=True)
class Model:
    """The latencies and limits of a platform and its launcher."""

    name: str = ''
    source: str = ''
    """Where the numbers come from."""
    queue: Cost = field(default_factory=Cost)
    """From the submission of a pilot until its nodes are there: the wait in the batch queue."""
    bootstrap: Cost = field(default_factory=Cost)
    """From then until its agent takes tasks."""
    placement: Cost = field(default_factory=Cost)
    """What the scheduler needs for a task that it places; tasks are placed one after the other."""
    search: Cost = field(default_factory=Cost)
    """What the scheduler needs for a search that finds no room."""
    lookahead: int = 0
    """How many waiting tasks are tried in vain before a pass ends, of a scheduler that goes through them in passes and
    hands on what it has placed at the end of each; 0 for the scheduler of this system."""
    launch: Cost = field(default_factory=Cost)
    """From when a launcher takes a task until its program runs."""
    first_launch: Cost = field(default_factory=Cost)
    """What a launch needs more on nodes where there was none before."""
    storage: Cost = field(default_factory=Cost)
    """What the file system needs for a launch before that; launches of all launchers wait for each other. `per_task`
    counts the tasks that were launched before."""
    acknowledge: Cost = field(default_factory=Cost)
    """From the end of the program until the agent knows of it, and frees what the task had."""
    teardown: Cost = field(default_factory=Cost)
    """From when the pilot is told to end until its nodes are given back."""
    launch_rate: float = 0.0
    """Tasks that a launcher takes in a second, one after the other; 0 for no limit."""
    concurrent: int = 0
    """Tasks that a launcher can have at a time; 0 for no limit."""
    launching: int = 0
    """Tasks that a launcher can launch at a time; 0 for no limit."""
    acknowledge_rate: float = 0.0
    """Ends of programs that a launcher takes in a second, one after the other, before it acknowledges them; 0 for no
    limit."""
    launch_method: str = ''
    """Of the platform definition, if this model is for another one than it has; that of DVMs divides the nodes."""
    launchers: int = 0
    """How many launchers share the nodes; 0 for as many as launch method and platform have."""
    lost_launchers: int = 0
    """How many of the launchers fail, and cannot be started again; which ones is drawn by chance."""
    launcher_life: Cost = field(default_factory=Cost)
    """From the start of these until they fail."""
    failures: float = 0.0
    """The share of tasks that fail when they are launched."""

    def __post_init__(self) -> None:
        for name in ('launch_rate', 'acknowledge_rate', 'failures'):
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
        """The same model but for these attributes; costs may be given as plain data."""
        return replace(self, **_attributes(values))

    def as_dict(self) -> dict[str, Any]:
        """The model as plain data, as it stands in a file."""
        return asdict(self)


def load_model(name: str = DEFAULT) -> Model:
    """The shipped model of that name, or that of a file (a path that ends in `.json`)."""
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
        raise DescriptionError(f'{path} is no JSON: {error}') from None
    return make_model({'name': path.stem, **values} if isinstance(values, dict) else values)


def list_models() -> list[str]:
    """The names of the shipped models."""
    return sorted(path.stem for path in DIRECTORY.glob('*.json'))


def make_model(values: Any) -> Model:
    """The model that plain data describes; DescriptionError says what in it is none."""
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
    """A cost; a number is a constant one."""
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
