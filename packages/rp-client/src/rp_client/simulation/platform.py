"""The platform of a simulation: a platform definition, or the size of a node, and the size of each pilot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rp_api.errors import DescriptionError
from rp_api.platforms import get_platform


@dataclass(frozen=True)
class Platform:
    """A platform on which each of `pilots` pilots has `nodes` nodes; `definition` is a platform definition.

    `runtime` is the runtime of each pilot in minutes; 0: no limit.
    """

    nodes: int
    definition: Mapping[str, Any] = field(default_factory=dict)
    pilots: int = 1
    label: str = ''
    runtime: int = 0

    def __post_init__(self) -> None:
        for name in ('nodes', 'pilots'):
            _at_least(1, name, getattr(self, name))
        _at_least(0, 'runtime', self.runtime)
        _at_least(1, 'cores_per_node', self.definition.get('cores_per_node'))

    @classmethod
    def named(cls, label: str, nodes: int, pilots: int = 1, cores: int | None = None,
              gpus: int | None = None, runtime: int = 0) -> Platform:
        """Return the platform of that label; `cores` and `gpus` of a node replace those of its definition."""
        definition = get_platform(label).as_dict()
        numbers = {'cores_per_node': cores, 'gpus_per_node': gpus}
        definition |= {name: value for name, value in numbers.items() if value is not None}
        if not definition['cores_per_node']:
            raise DescriptionError(f'cores_per_node of {label} is not defined: set the number of cores')
        return cls(nodes, definition, pilots, label, runtime)

    @classmethod
    def of(cls, nodes: int, cores: int, gpus: int = 0, pilots: int = 1, runtime: int = 0,
           **definition: Any) -> Platform:
        """Return a machine with these cores and GPUs per node, and other attributes of a platform definition."""
        _at_least(0, 'gpus', gpus)
        return cls(nodes, {**definition, 'cores_per_node': cores, 'gpus_per_node': gpus}, pilots, runtime=runtime)

    def sized(self, nodes: int) -> Platform:
        """Return the platform with another number of nodes per pilot."""
        return replace(self, nodes=nodes)


def _at_least(least: int, name: str, value: Any) -> None:
    if type(value) is not int or value < least:
        raise DescriptionError(f'{name} is {value!r}, allowed are whole numbers from {least} on')
