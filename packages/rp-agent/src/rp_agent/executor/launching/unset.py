"""Variables in the arguments of tasks that have no value: the application is told, once for each name.

Such a task gets another argument than its author has written, often without an error: `print("cost: $5")` prints no
cost. The agent looks at all tasks before they run, where it knows which variables will be set. Commands of a task may
set others, and so do launchers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from rp_agent.executor.launching.expand import variables
from rp_agent.task import AgentTask, differing
from rp_api.system.gpus import VISIBLE_GPUS

MOST = 10
"""Number of names about which an agent tells the application."""

_SETTING = ('pre_exec', 'pre_launch', 'named_env', 'raptor_id', 'container')
"""Attributes with which variables may be set that the agent does not know."""

_SET = frozenset({'PWD', 'OMP_NUM_THREADS', *VISIBLE_GPUS.values()})
_OF_LAUNCHERS = re.compile(r'(?:RP|OMPI|PMI|PMIX|PRTE|MPI|MV2|I_MPI|HYDRA|PALS|ALPS|SLURM|JSM|FLUX|DRAGON|PBS)_')


class UnsetVariables:
    """Tells the application, by `notice`, about variables without a value.

    `environment` returns the environment that all tasks have; it is called when a task first uses a variable.
    """

    def __init__(self, environment: Callable[[], Mapping[str, str]], notice: Callable[[str], object]) -> None:
        self._environment = environment
        self._notice = notice
        self._base: Mapping[str, str] | None = None
        self._told: set[str] = set()

    def look(self, tasks: Iterable[AgentTask]) -> None:
        """Look at the arguments of new tasks."""
        for task in differing(tasks):
            arguments = task.description['arguments']
            if arguments and '$' in str(arguments) and len(self._told) < MOST:
                self._look(task.uid, task.description)

    def _look(self, uid: str, description: Mapping[str, Any]) -> None:
        if description['literal_arguments'] or not isinstance(description['environment'], dict):   # it is refused later
            return
        for name in _unset(description, self._known()):
            if name not in self._told and len(self._told) < MOST:
                self._told.add(name)
                self._notice(f'{uid}: ${name} in its arguments is not set and is replaced by nothing; for a plain "$", '
                             f'set literal_arguments=True, or write \\${name}')

    def _known(self) -> Mapping[str, str]:
        if self._base is None:
            self._base = self._environment()
        return self._base


def _unset(description: Mapping[str, Any], base: Mapping[str, str]) -> Iterator[str]:
    """Yield the names in the arguments that have no value."""
    others = any(description[name] for name in _SETTING)
    known = description['environment'], base, _SET
    for name in (name for text in description['arguments'] for name in _names(str(text))):
        is_parameter = not name.isidentifier()   # of the shell
        if is_parameter or not (others or any(name in each for each in known) or _OF_LAUNCHERS.match(name)):
            yield name


@lru_cache(4096)
def _names(text: str) -> tuple[str, ...]:
    return tuple(variables(text))
