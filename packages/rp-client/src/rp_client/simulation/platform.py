"""The machine of a simulation: a platform definition, or the numbers of a node; and what each pilot has of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rp_api.errors import DescriptionError
from rp_api.platforms import get_platform


@dataclass(frozen=True)
class Platform:
    """Nodes for each of `pilots` pilots, and what is known of them; `definition` is that of a platform.

    `runtime` is that of each pilot, in minutes; 0 for no limit.
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
        """A platform that is known; `cores` and `gpus` of a node are those of its definition if they are not given."""
        definition = get_platform(label).as_dict()
        numbers = {'cores_per_node': cores, 'gpus_per_node': gpus}
        definition |= {name: value for name, value in numbers.items() if value is not None}
        if not definition['cores_per_node']:
            raise DescriptionError(f'the definition of {label} does not say how many cores a node has: give their '
                                   'number')
        return cls(nodes, definition, pilots, label, runtime)

    @classmethod
    def of(cls, nodes: int, cores: int, gpus: int = 0, pilots: int = 1, runtime: int = 0,
           **definition: Any) -> Platform:
        """A machine of which only the cores and GPUs of a node are known, and what else is given of a definition."""
        _at_least(0, 'gpus', gpus)
        return cls(nodes, {**definition, 'cores_per_node': cores, 'gpus_per_node': gpus}, pilots, runtime=runtime)

    def sized(self, nodes: int) -> Platform:
        """The same platform, and another number of nodes of each pilot."""
        return replace(self, nodes=nodes)


def _at_least(least: int, name: str, value: Any) -> None:
    if type(value) is not int or value < least:
        raise DescriptionError(f'{name} is {value!r}, allowed are whole numbers from {least} on')
