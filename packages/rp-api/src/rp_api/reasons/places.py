"""Reasons of tasks that wait for a place on the nodes of a pilot, from what its agent tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rp_api.reasons.kinds import KINDS, PLACE
from rp_api.reasons.reason import Reason

DEFAULTS: Mapping[str, Any] = {'ranks': 1, 'cores_per_rank': 1, 'gpus_per_rank': 0.0, 'mem_per_rank': 0,
                               'lfs_per_rank': 0, 'ranks_per_node': None}
"""The attributes of a description that say what a task needs, with their defaults."""

LIMITS = ('tags', 'slots', 'use_mpi', 'partition')
"""Further attributes that limit where a task may be placed."""


def needs_of(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a task needs of its pilot: the attributes that differ from their defaults, and cores in any case."""
    found = {name: value for name, default in DEFAULTS.items()
             if (value := description.get(name, default) or default) != default}
    found.setdefault('cores_per_rank', description.get('cores_per_rank', 1))
    if found.get('ranks', 1) == 1:
        found.pop('ranks_per_node', None)
    limits = {name: value for name in LIMITS if (value := description.get(name)) not in (None, [], {}, '')}
    if found.get('ranks', 1) == 1 or limits.get('use_mpi'):
        limits.pop('use_mpi', None)
    return found | limits


def needs_text(needs: Mapping[str, Any]) -> str:
    """Return needs in words, such as `4 ranks with 2 cores and 1 GPU each`."""
    ranks = needs.get('ranks', 1)
    cores, gpus = needs.get('cores_per_rank', 1), needs.get('gpus_per_rank', 0)
    parts = [counted(cores, 'core')] if cores else []
    if gpus:
        parts.append(counted(gpus, 'GPU') if gpus >= 1 else f'{gpus:g} of a GPU')
    parts += [f'{needs[name]:g} MB of {what}' for name, what in (('mem_per_rank', 'memory'),
                                                                 ('lfs_per_rank', 'local storage')) if needs.get(name)]
    each = ' and '.join(parts) or 'no core'
    return each if ranks == 1 else f'{ranks} ranks with {each} each'


def counted(count: float, name: str) -> str:
    """Return a number with a noun."""
    return f'{count:g} {name}' + ('' if count == 1 else 's')


def place(task: Mapping[str, Any], pilot: Mapping[str, Any] | None, reported: Reason | None) -> Reason:
    """Return why a task waits for a place on its pilot or partition, or else what was `reported` of the task."""
    needs, uid = needs_of(task['description']), task['uid']
    entry = _entry(needs, uid, (pilot or {}).get('waiting') or ())
    if entry is None:
        return reported or Reason(PLACE, f'waits for a place for {needs_text(needs)} on {task.get("pilot")}', None,
                      {'needs': needs, 'pilot': task.get('pilot')}, KINDS[PLACE].remedy)
    sentence, first = str(entry['sentence']), entry.get('first')
    if first != uid:
        sentence += f'; {first} is ahead of it' + (f', of {entry["count"]} such tasks' if entry['count'] > 2 else '')
    evidence = {name: entry[name] for name in ('needs', 'free', 'holders', 'count', 'first', 'ahead') if name in entry}
    remedy = str(entry.get('remedy') or KINDS[PLACE].remedy)
    return Reason(PLACE, sentence, entry.get('since'), {**evidence, 'pilot': task.get('pilot')}, remedy)


def _entry(needs: Mapping[str, Any], uid: str, waiting: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return what the agent tells about the tasks that need the same."""
    for entry in waiting:
        if entry.get('first') == uid or uid in entry.get('members', ()):
            return entry
    return next((entry for entry in waiting if entry.get('needs') == needs), None)
