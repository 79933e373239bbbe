"""Complete descriptions of tasks, as dispatchers see them.

The part that similar tasks share is prepared once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rp_api.constants import TASK_PROC, TASK_SHELL
from rp_api.description.python_task import shown_call
from rp_api.description.task import TaskDescription
from rp_api.wire import codec

Description = dict[str, Any]

_DEFAULTS = TaskDescription().as_dict()
_PROGRAMS = (TASK_PROC, TASK_SHELL)
_STAGED = ('sandbox', 'input_staging', 'output_staging')

DECISIVE = frozenset({'mode', 'name', 'ranks', 'environment', 'stdout', 'stderr', *_STAGED})
"""Attributes that decide how a task is run; only its dispatcher reads the others."""

_NO_VARIABLES: Mapping[str, str] = {}


class Prepared:
    """The shared part of descriptions, and what follows from it.

    `variables` are the variables of the task's environment. `in_sandbox` is true if the task runs in its sandbox, as
    programs do, and functions only if they name one or stage files. `output` has the files that the rank writes for
    stdout and stderr (programs write theirs themselves); it is empty if there are none.
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

    def readable(self, own: Mapping[str, Any]) -> Description:
        """Return the description of a task for a dispatcher that only reads it, with private values that are not empty.

        `own` are the attributes in which the task differs, none of them DECISIVE.
        """
        if self._own:
            return {**self._fixed, **codec.unpack(self._own), **own}
        return {**self._fixed, **own} if own else self._fixed

    def description(self, uid: str, own: Mapping[str, Any]) -> Description:
        """Return the complete description of a task, which may be changed: descriptions share no mutable values.

        `own` are the attributes in which the task differs, none of them DECISIVE.
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
        if isinstance(description['function'], bytes):
            description = {'args': [], **shown_call(description)}
        description['uid'] = uid
        return description
