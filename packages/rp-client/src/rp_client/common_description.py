"""What like tasks have in common: their descriptions, packed once for all of them, and what the client looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_api import constants as c
from rp_api.description import task as names
from rp_api.staging.location import acts_on_client
from rp_api.wire import codec

NOTHING = codec.pack({})
"""What a task has of its own that differs in nothing from what it has in common with others."""

LOOKED_AT = frozenset({
    names.MODE, names.RAPTOR_ID, names.PILOT, names.INPUT_STAGING, names.OUTPUT_STAGING, names.RESTARTABLE,
    names.STAGE_ON_ERROR, names.CLEANUP})
"""The attributes in which tasks that have something in common never differ."""


class CommonDescription:
    """A description as plain data, of which each task may replace some attributes, but for `LOOKED_AT`.

    `packed` is the description; `stages_input` and `stages_output` tell whether files are to be moved by the client.
    """

    __slots__ = ('mode', 'packed', 'pilot', 'raptor_id', 'restartable', 'stages_input', 'stages_output')

    def __init__(self, sparse: Mapping[str, Any], packed: bytes) -> None:
        self.packed = packed
        self.mode: str = sparse.get(names.MODE, c.TASK_EXECUTABLE)
        self.pilot: str = sparse.get(names.PILOT, '')
        self.raptor_id: str = sparse.get(names.RAPTOR_ID, '')
        self.restartable = bool(sparse.get(names.RESTARTABLE))
        self.stages_input = _for_client(sparse.get(names.INPUT_STAGING))
        self.stages_output = _for_client(sparse.get(names.OUTPUT_STAGING))


def _for_client(directives: Any) -> bool:
    return bool(directives) and any(acts_on_client(directive['action']) for directive in directives)
