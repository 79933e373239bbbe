"""Descriptions of tasks on a rank, complete, as dispatchers look at them.

What like tasks have in common is prepared once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_api.constants import TASK_PROC, TASK_SHELL
from rp_api.description.task import TaskDescription
from rp_api.wire import codec

Description = dict[str, Any]

_DEFAULTS = TaskDescription().as_dict()
_PROGRAMS = (TASK_PROC, TASK_SHELL)
_STAGED = ('sandbox', 'input_staging', 'output_staging')

DECISIVE = frozenset({'mode', 'name', 'ranks', 'environment', 'stdout', 'stderr', *_STAGED})
"""Attributes that decide how a task is run; all others are for its dispatcher alone."""

_NO_VARIABLES: Mapping[str, str] = {}


class Prepared:
    """What a description sets, and what follows from it.

    `variables` are those of its environment. `in_sandbox` tells whether the task runs in its sandbox, as programs do,
    and functions only if they ask for one or have files there. `output` has the files that the rank has to write to
    for stdout and stderr, which programs do themselves; it is empty if there are none.
    """

    __slots__ = ('_fixed', '_lists', '_mappings', '_own', 'in_sandbox', 'mode', 'name', 'output', 'ranks', 'variables')

    def __init__(self, given: Mapping[str, Any]) -> None:
        whole = {**_DEFAULTS, **given}
        mutable = {name: value for name, value in given.items() if isinstance(value, list | dict) and value}
        self._fixed = whole
        self._lists = [name for name, value in whole.items() if isinstance(value, list) and name not in mutable]
        self._mappings = [name for name, value in whole.items() if isinstance(value, dict) and name not in mutable]
        self._own = codec.pack(mutable) if mutable else b''
        self.mode: str = whole['mode']
        self.name: str = given.get('name') or ''
        self.ranks: int = whole['ranks']
        environment = given.get('environment')
        self.variables = {name: str(value) for name, value in environment.items()} if environment else _NO_VARIABLES
        self.in_sandbox = self.mode in _PROGRAMS or any(given.get(name) for name in _STAGED)
        said = whole['stdout'], whole['stderr']
        self.output = said if any(said) and self.mode not in _PROGRAMS else ()

    def description(self, uid: str, own: Mapping[str, Any]) -> Description:
        """The complete description of a task, which may be changed: it has nothing in common with that of another.

        `own` is what it has instead of what is here, nothing of that DECISIVE.
        """
        description = self._fixed.copy()
        for name in self._lists:
            description[name] = []
        for name in self._mappings:
            description[name] = {}
        if self._own:
            description.update(codec.unpack(self._own))
        if own:
            description.update(own)
        description['uid'] = uid
        return description
