"""Descriptions that several tasks share, packed once, with the attributes that the client reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rp_api import constants as c
from rp_api.description import task as names
from rp_api.errors import attribute_type_error
from rp_api.staging.location import acts_on_client
from rp_api.wire import codec

NOTHING = codec.pack({})
"""The packed differences of a task without any."""

LOOKED_AT = frozenset({
    names.MODE, names.RAPTOR_ID, names.PILOT, names.INPUT_STAGING, names.OUTPUT_STAGING, names.RESTARTABLE,
    names.RETRIES, names.STAGE_ON_ERROR, names.CLEANUP, names.CACHE})
"""Attributes that are equal in all tasks that share a description."""


class CommonDescription:
    """A shared description, of which a task may replace attributes that are not in `LOOKED_AT`.

    `packed` is the description; `stages_input` and `stages_output` are True if the client transfers files, and
    `restartable` is True if tasks may run again. `submitted` is the time of the submission, in seconds since the epoch.
    """

    __slots__ = ('cache', 'mode', 'packed', 'pilot', 'raptor_id', 'restartable', 'stages_input', 'stages_output',
                 'submitted')

    def __init__(self, sparse: Mapping[str, Any], packed: bytes, submitted: float | None = None) -> None:
        self.packed = packed
        self.submitted = submitted
        self.mode: str = sparse.get(names.MODE, c.TASK_EXECUTABLE)
        self.pilot: str = sparse.get(names.PILOT, '')
        self.raptor_id: str = sparse.get(names.RAPTOR_ID, '')
        self.cache = bool(sparse.get(names.CACHE))
        self.restartable = bool(sparse.get(names.RESTARTABLE) or sparse.get(names.RETRIES))
        self.stages_input = _for_client(sparse.get(names.INPUT_STAGING))
        self.stages_output = _for_client(sparse.get(names.OUTPUT_STAGING))


def _for_client(directives: Any) -> bool:
    return bool(directives) and any(acts_on_client(directive['action']) for directive in directives)


def counts(kind: str, total: int, by_state: Mapping[str, int]) -> str:
    """Return how many tasks or pilots there are, of which so many are in certain states."""
    states = [f'{number} {state}' for state, number in by_state.items() if number]
    return ', '.join([f'{total} {kind}{"" if total == 1 else "s"}', *states])


def listed(descriptions: Any, kind: str) -> list[Any]:
    """Return one description, or several, as a list; raise `AttributeTypeError` for other objects."""
    many = isinstance(descriptions, Iterable) and not isinstance(descriptions, Mapping | str)
    found = list(descriptions) if many else [descriptions]
    for description in found:
        if not isinstance(description, (dict, Mapping)):   # dict first: the check of an abstract class is slow
            raise attribute_type_error(f'{kind} descriptions are needed, not {description!r}')
    return found
