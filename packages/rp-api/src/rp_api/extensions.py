"""Extensions from other distributions: entry points in the groups `radical_pilot.*`, described in docs/extend."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rp_api.errors import PlatformError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_OLD_GROUPS = {
    'radical_pilot.commands': 'rp.commands',
    'radical_pilot.executors': 'rp_agent.executors',
    'radical_pilot.launch_methods': 'rp_agent.launch_methods',
    'radical_pilot.launchers': 'radical.pilot.launchers',
    'radical_pilot.resource_managers': 'rp_agent.resource_managers',
    'radical_pilot.scheduling_policies': 'rp_agent.schedulers',
    'radical_pilot.simulation': 'rp.simulation',
}
"""The names of the groups in version 2.0, which version 2.1 still reads."""


def installed(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; warn (DeprecationWarning) about those in the group's old name."""
    from importlib.metadata import entry_points  # importing it takes longer than most of an agent's start

    points = entry_points()
    found: dict[str, EntryPoint] = {}
    for point in points.select(group=group):
        found.setdefault(point.name, point)
    for point in points.select(group=_OLD_GROUPS.get(group, '')):
        if point.name not in found:
            warnings.warn(f'the entry point {point.name} = {point.value} is in the group {point.group}, which will not '
                          f'be read any more: declare it in {group}', DeprecationWarning, stacklevel=2)
            found[point.name] = point
    return found


def mentioned(group: str) -> bool:
    """Return whether a distribution may have entry points in a group: a faster answer than that of `installed`.

    It may be True although there are none.
    """
    names = [name.encode() for name in (group, _OLD_GROUPS.get(group)) if name]
    for place in sys.path:
        if os.path.isfile(place):   # an archive
            return True
        with suppress(OSError), os.scandir(place or '.') as entries:
            for entry in entries:
                if entry.name.endswith(('.dist-info', '.egg-info', '.egg')) and _has(entry.path, names):
                    return True
    return False


def _has(metadata: str, names: Sequence[bytes]) -> bool:
    for path in (os.path.join(metadata, 'entry_points.txt'), os.path.join(metadata, 'EGG-INFO', 'entry_points.txt')):
        with suppress(OSError), open(path, 'rb') as file:
            content = file.read()
            return any(name in content for name in names)
    return False


def find(group: str, name: str, own: Mapping[str, str], described: str) -> Any:
    """Return the extension called `name`, from the table `own` or from the entry points of the group.

    Args:
        group: The entry-point group. It is searched only for names that are not in `own`, because that is slow.
        name: The name of the extension.
        own: `module:attribute` of the extensions of this project, by name.
        described: The subject of the error message.

    Raises:
        PlatformError: The name is unknown; the message lists all names.
    """
    if name in own:
        return load(own[name])
    others = installed(group)
    if name not in others:
        raise PlatformError(f'{described} is unknown, installed are {", ".join(sorted({*own, *others}))}')
    return others[name].load()


def load(where: str) -> Any:
    """Import and return the object that `module:attribute` refers to."""
    module, _, attribute = where.partition(':')
    return getattr(importlib.import_module(module), attribute)
