"""Verification of dependencies between tasks, in the application's thread: `after`, and sources in other sandboxes.

Tasks can only be after tasks that the session knows, or that are submitted by the same call. Therefore there are cycles
at most within one call.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rp_api.constants import COPY
from rp_api.description import task as names
from rp_api.description.after import DONE, Value, after, conditions
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError
from rp_api.staging.directive import Directive, expand
from rp_api.staging.location import acts_on_client, other_task
from rp_api.task_modes import SERVICE_MODES
from rp_client.flow.uids import Uids

CYCLE_SHOWN = 8
"""Tasks of a cycle that an error names at most."""

_GENERATED = re.compile(r'task\.\d{6,}')


class Dependencies:
    """The dependencies of the tasks of one submission, which have these uids and descriptions."""

    def __init__(self, uids: Uids, wanted: Sequence[str], descriptions: Sequence[Mapping[str, Any]]) -> None:
        self._uids = uids
        self._wanted = wanted
        self._descriptions = descriptions
        self._own: dict[str, int] = {}   # positions of these uids, once they are needed
        self._after: list[tuple[int, Value]] = []
        self._endless: set[str] = set()   # services among these tasks

    def with_sources(self, uid: str, description: TaskDescription) -> TaskDescription:
        """Return a description whose sources in sandboxes of other tasks are directives of the agent, and in `after`.

        Raises:
            DescriptionError: A directive is not valid.
        """
        staged = dict.get(description, names.INPUT_STAGING)
        if not staged or 'task://' not in repr(staged):
            return description
        found = [self._directive(uid, each) for each in (staged if isinstance(staged, list | tuple) else [staged])]
        others = dict.fromkeys(other for _, other in found if other)
        if not others:
            return description
        copy = TaskDescription(description)
        copy[names.INPUT_STAGING] = [directive for directive, _ in found]
        named = after(dict.get(description, names.AFTER) or [])
        copy[names.AFTER] = ({**dict.fromkeys(others, DONE), **named} if isinstance(named, dict)
                             else list(dict.fromkeys([*named, *others])))
        return copy

    def add(self, position: int, description: dict[str, Any]) -> None:
        """Note what the task in that position is after, once its description was verified."""
        value = dict.get(description, names.AFTER)
        if value:
            self._after.append((position, after(value)))
        if dict.get(description, names.MODE) in SERVICE_MODES:
            self._endless.add(self._wanted[position])

    def check(self) -> None:
        """Raise `DescriptionError` if a task is after an unknown one, after itself, or will never be started."""
        if not self._after:
            return
        others = {uid for _, value in self._after for uid in value}
        own = self._positions()
        unknown = self._uids.unknown_tasks(others - own.keys())
        if unknown:
            self._refuse(unknown)
        endless = others & (self._endless | self._uids.endless)
        if endless:
            self._refuse_endless(endless)
        if not others.isdisjoint(own):
            self._check_cycles(own)

    def leads(self) -> dict[str, str]:
        """Return the first task that each task is after."""
        return {self._wanted[position]: next(iter(value)) for position, value in self._after}

    def accepted(self) -> None:
        """Remember the services among these tasks, which later ones cannot wait for to be done."""
        self._uids.endless |= self._endless

    def _positions(self) -> dict[str, int]:
        if not self._own:
            self._own = {uid: position for position, uid in enumerate(self._wanted)}
        return self._own

    def _directive(self, uid: str, given: Any) -> tuple[Directive | Any, str]:
        """Return a directive and the other task that its source belongs to, if it does."""
        directive, = expand(given)
        other = (other_task(directive['source']) or ('',))[0]
        if not other or other == uid or not self._is_task(uid, other, directive):
            return given, ''
        chosen = isinstance(given, Mapping) and given.get('action') is not None
        if chosen and acts_on_client(directive['action']):
            raise DescriptionError(f'staging directive {given!r} of {uid}: the agent stages files of other tasks, use '
                                   'one of the actions COPY, LINK and MOVE')
        sandbox = self._sandbox(other)
        if sandbox:
            raise DescriptionError(f'staging directive {given!r} of {uid}: {other} has the sandbox {sandbox!r}, name '
                                   'the file by its path there, and the task in `after`')
        return {**directive, 'action': directive['action'] if chosen else COPY}, other

    def _is_task(self, uid: str, other: str, directive: Directive) -> bool:
        """Return whether this is the uid of another task, not a directory in the task's own sandbox."""
        known = other in self._positions() or not self._uids.unknown_tasks([other])
        if not known and _GENERATED.fullmatch(other):
            raise DescriptionError(f'TaskDescription.input_staging of {uid} has the source {directive["source"]!r}, '
                                   f'but {_unknown(other)}')
        return known

    def _sandbox(self, other: str) -> str:
        """Return the `sandbox` in the description of a task; empty if it has none, or is forgotten."""
        position = self._positions().get(other)
        task = self._uids.find_task(other) if position is None else None
        described = task.sparse() if task is not None else {} if position is None else self._descriptions[position]
        return str(dict(described).get(names.SANDBOX) or '')

    def _refuse(self, unknown: Collection[str]) -> None:
        position, other = next((position, uid) for position, value in self._after for uid in value if uid in unknown)
        raise DescriptionError(f'TaskDescription.after of {self._wanted[position]} names {other!r}, '
                               f'but {_unknown(other)}')

    def _refuse_endless(self, endless: Collection[str]) -> None:
        for position, value in self._after:
            for uid, condition in conditions(value):
                if uid in endless and condition == DONE:
                    raise DescriptionError(
                        f'TaskDescription.after of {self._wanted[position]} requires that {uid} is done, but that is a '
                        'service, RAPTOR master or worker, which runs until it is stopped: use the condition "ended" '
                        'or "failed", or `services` to wait until a service is ready')

    def _check_cycles(self, own: Mapping[str, int]) -> None:
        """Raise an error if a task is after itself, directly or through others."""
        if all(own.get(uid, -1) < position for position, value in self._after for uid in value):
            return   # the usual order
        after = {position: [own[uid] for uid in value if uid in own] for position, value in self._after}
        left = dict.fromkeys(range(len(self._wanted)), 0)
        dependents: dict[int, list[int]] = {}
        for position, others in after.items():
            left[position] = len(others)
            for other in others:
                dependents.setdefault(other, []).append(position)
        ready = [position for position, number in left.items() if not number]
        for position in ready:   # grows
            for dependent in dependents.get(position, ()):
                left[dependent] -= 1
                if not left[dependent]:
                    ready.append(dependent)
        if len(ready) < len(self._wanted):
            self._refuse_cycle(after, {position for position, number in left.items() if number})

    def _refuse_cycle(self, after: Mapping[int, list[int]], stuck: set[int]) -> None:
        """Raise the error that names a cycle among tasks each of which is after another one of them."""
        path: dict[int, None] = {}
        position = min(stuck)
        while position not in path:
            path[position] = None
            position = next(other for other in after[position] if other in stuck)
        cycle = [self._wanted[each] for each in list(path)[list(path).index(position):]]
        shown = cycle if len(cycle) <= CYCLE_SHOWN else [*cycle[:CYCLE_SHOWN], '...']
        raise DescriptionError(f'TaskDescription.after: {shown[0]} is after '
                               + ', which is after '.join([*shown[1:], cycle[0]])
                               + '; no task can be after itself')


def _unknown(uid: str) -> str:
    return (f'{uid!r} is no task of this session: name tasks that were submitted before, or uids of tasks in the same '
            'call')
