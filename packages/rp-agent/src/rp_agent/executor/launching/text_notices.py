"""Texts of tasks that the programs get in another form than written, or in the written form against expectation.

Such tasks often fail to do what their authors want without an error: `print("cost: $5")` prints no cost. The agent
looks at all tasks before they run, and tells the application:

- once for each name, of variables in arguments that have no value. The agent knows which variables will be set.
  Commands of a task may set others, and so do launchers;
- once, of an executable that a shell reads as a command line;
- once, of commands in values of the environment, which stay text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any

from rp_agent.task import AgentTask, differing
from rp_api.system.gpus import VISIBLE_GPUS
from rp_api.system.shell_text import has_command, unexpanded, variables

NAMES_MAX = 10
"""Number of names about which an agent tells the application."""

_SETTING = ('pre_exec', 'pre_launch', 'named_env', 'raptor_id', 'container')
"""Attributes with which variables may be set that the agent does not know."""

_SET = frozenset({'PWD', 'OMP_NUM_THREADS', *VISIBLE_GPUS.values()})
_OF_LAUNCHERS = re.compile(r'(?:RP|OMPI|PMI|PMIX|PRTE|MPI|MV2|I_MPI|HYDRA|PALS|ALPS|SLURM|JSM|FLUX|DRAGON|PBS)_')


class TextNotices:
    """Tells the application, by `notice`, about texts of tasks.

    `environment` returns the environment that all tasks have; it is called when a task first uses a variable.
    """

    def __init__(self, environment: Callable[[], Mapping[str, str]], notice: Callable[[str], object]) -> None:
        self._environment = environment
        self._notice = notice
        self._told: set[str] = set()
        self._told_command = self._told_value = False

    def look(self, tasks: Iterable[AgentTask]) -> None:
        """Look at the texts of new tasks."""
        for task in differing(tasks):
            try:
                self._look_at(task)
            except Exception as error:   # whatever a client has sent concerns this task alone
                task.broke(error, 'looking at its texts')

    def _look_at(self, task: AgentTask) -> None:
        description = task.description
        if description['literal_arguments']:
            return
        if not self._told_command and isinstance(description['executable'], str):
            self._look_at_executable(task)
        if description['environment'] and not self._told_value:
            self._look_at_values(task.uid, description['environment'])
        arguments = description['arguments']
        if arguments and '$' in str(arguments) and len(self._told) < NAMES_MAX:
            self._look(task.uid, task.description)

    def _look_at_executable(self, task: AgentTask) -> None:
        if has_command(task.description, task.sandbox):
            self._told_command = True
            self._notice(f'{task.uid}: its executable {task.description["executable"]!r:.200} is not one word and no '
                         f'existing path: a shell reads it as a command line. Further ones are not reported. For a '
                         f'program with arguments, set executable and arguments; for a program of exactly this name, '
                         f'set literal_arguments=True')

    def _look_at_values(self, uid: str, environment: Any) -> None:
        values = environment.items() if isinstance(environment, dict) else ()   # it is refused later
        name = next((name for name, value in values if unexpanded(str(value))), None)
        if name is not None:
            self._told_value = True
            self._notice(f'{uid}: the value of {name} in its environment has backticks, "$(" or "${{...", which stay '
                         f'text: only $NAME and ${{NAME}} are replaced there. Further ones are not reported. To set a '
                         f'variable to the output of a command, use pre_exec; without `$NAME`, literal_arguments=True '
                         f'says that the values are meant as they are')

    def _look(self, uid: str, description: Mapping[str, Any]) -> None:
        if not isinstance(description['environment'], dict):   # it is refused later
            return
        for name in _unset(description, self._base):
            if name not in self._told and len(self._told) < NAMES_MAX:
                self._told.add(name)
                self._notice(f'{uid}: ${name} in its arguments is not set and is replaced by nothing; for a plain "$", '
                             f'set literal_arguments=True, or write \\${name}')

    @cached_property
    def _base(self) -> Mapping[str, str]:
        return self._environment()


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
