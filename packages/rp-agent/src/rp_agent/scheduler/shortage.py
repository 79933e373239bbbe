"""Shortages: why waiting tasks are not placed now, as plain data for the application.

There is one entry for each distinct requirement of the wait pool, with what the tasks need, what is free, which tasks
hold the rest, and for which task nodes are kept free.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from rp_agent.resource_manager.base import Allocation
from rp_agent.scheduler.explicit_slots import ExplicitRequest
from rp_agent.scheduler.policy import Bounds, Item, Policy
from rp_agent.scheduler.reservation import Reservation
from rp_agent.scheduler.slotmap import Shape, SlotMap
from rp_agent.task import AgentTask
from rp_api.constants import RAPTOR_MASTER, RAPTOR_WORKER
from rp_api.reasons.places import counted, needs_of, needs_text
from rp_api.resources.pool import UNITS
from rp_api.task_modes import SERVICE_MODES

MAX_ENTRIES = 32
"""Requirements that are explained at most."""

MAX_HOLDERS = 8
"""Tasks that an entry names at most, of those that hold resources."""

MAX_EXAMINED = 5000
"""Tasks of the agent that are looked at for that, the oldest ones."""

_NEEDED = {'cores': 'cores_per_rank', 'gpus': 'gpus_per_rank', 'share': 'gpus_per_rank', 'mem': 'mem_per_rank',
           'lfs': 'lfs_per_rank'}

Waiting = tuple[Item, float, int]
"""An item, since when it waits, and the number of items with the same requirement."""


class PilotNodes(NamedTuple):
    """The nodes of a pilot, and what is placed or kept free on them."""

    slots: SlotMap
    allocation: Allocation
    policy: Policy
    reservation: Reservation[Item]
    tasks: Mapping[str, AgentTask]


def shortages(waiting: Iterable[Waiting], nodes: PilotNodes, now: float) -> list[dict[str, Any]]:
    """Return what keeps each of these items, and those that the policy holds back, from being placed.

    Args:
        waiting: The foremost items of the wait pool.
        nodes: The nodes, and the tasks of the agent.
        now: The time, by the clock of the times since when the items wait.
    """
    holders = _Holders(nodes.tasks.values())
    past = time.time() - now
    entries = []
    for item, since, count in waiting:
        first, *more = nodes.policy.tasks([item])
        needs = needs_of(first.description)
        try:
            entry = (_explicit if type(item.request) is ExplicitRequest else _entry)(item, nodes, holders)
        except Exception as error:   # a policy of others does not say what it needs
            entry = {'free': {}, 'holders': [], 'sentence': f'needs {needs_text(needs)}, and the policy '
                     f'{type(nodes.policy).__name__} has not placed it ({error!r})'}
        entries.append({'needs': needs, 'count': count * (1 + len(more)), 'first': first.uid,
                        'since': past + since, **entry})
    for tasks, text in islice(nodes.policy.held(), MAX_ENTRIES - len(entries)):
        entries.append({'needs': needs_of(tasks[0].description), 'count': len(tasks), 'first': tasks[0].uid,
                        'since': None, 'free': {}, 'holders': [], 'sentence': text})
    return entries


class _Holders:
    """The tasks that hold resources: one that has ended, or waits for its next attempt, has released them."""

    def __init__(self, tasks: Iterable[AgentTask]) -> None:
        self.placed = [task for task in islice(tasks, MAX_EXAMINED) if task.placement is not None
                       and getattr(task.placement, 'whole', task.placement).held]
        self._found: dict[Any, list[AgentTask]] = {}

    def of(self, lacking: Sequence[str], there: frozenset[int] | None) -> list[AgentTask]:
        """Return those that hold something that is lacking, on these nodes."""
        key = frozenset(_NEEDED[name] for name in lacking), there
        if key not in self._found:
            needed = list(key[0])
            self._found[key] = [task for task in self.placed if (
                not needed or any(map(task.description.__getitem__, needed)))
                and (there is None or not there.isdisjoint(task.placement.nodes()))]
        return self._found[key]


def _entry(item: Item, nodes: PilotNodes, holders: _Holders) -> dict[str, Any]:
    bounds = nodes.policy.bounds(item)
    room = nodes.slots.room(bounds.shape, bounds.positions)
    lacking = _lacking(bounds.shape, room['most'])
    there = None if bounds.positions is None else frozenset(bounds.positions)
    holding = holders.of(lacking, there)
    reserved = _reserved(item, nodes)
    if reserved.get('own'):
        sentence = f'needs {_needs(bounds)}, and {reserved["own"]} kept free for it until the tasks there have ended'
    else:
        sentence = _sentence(bounds, room, lacking) + str(reserved.get('text', ''))
    found: dict[str, Any] = {'free': _shown(bounds.shape, room), 'holders': [
        task.uid for task in holding[:MAX_HOLDERS]]}
    if 'ahead' in reserved:
        found['ahead'] = reserved['ahead']
    endless = _endless(holding) if there is None and len(holders.placed) == nodes.slots.held_count else ''
    if endless:
        sentence += f'; {endless} hold {_held(lacking, room, nodes.allocation)} until they end'
        found['remedy'] = f'end one of the {endless}, or add a larger pilot: they hold this until they end'
    return {**found, 'sentence': sentence}


def _lacking(shape: Shape, most: Mapping[str, float]) -> list[str]:
    """Return the resources that no node has free for a rank."""
    asked = {'cores': shape.cores, 'gpus': shape.gpus, 'share': shape.share / UNITS, 'mem': shape.mem,
             'lfs': shape.lfs}
    return [name for name, value in asked.items() if value > most[name]]


def _shown(shape: Shape, room: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is free of the resources that a shape needs, for people."""
    asked = {'cores': shape.cores, 'gpus': shape.gpus or shape.share, 'mem': shape.mem, 'lfs': shape.lfs}
    found = {name: room[name] for name in ('cores', 'gpus') if asked[name]}
    return found | {f'{name} on one node': room['most'][name] for name, value in asked.items() if value} | (
        {'ranks': room['ranks']} if shape.ranks > 1 else {})


def _sentence(bounds: Bounds, room: Mapping[str, Any], lacking: Sequence[str]) -> str:
    shape, most = bounds.shape, room['most']
    if room['ranks'] >= shape.ranks:
        return f'needs {_needs(bounds)}' + (', which is not free as a whole' if bounds.where else
                                            ', and is placed next')
    free = ' and '.join(_free(name, most[name]) for name in lacking)
    if shape.ranks > 1:
        why = f': at most {free} free on one node' if lacking and not room['ranks'] else ''
        return f'needs {_needs(bounds)}, there is room for {room["ranks"] or "none"}{why}'
    where = bounds.where or ('' if lacking == ['cores'] and shape.cores == 1 else 'on one node')
    if not lacking:
        return f'needs {_needs(bounds)} {where}, and no node has all of it free'
    needed = ' and '.join(_needed(name, shape) for name in lacking)
    if len(lacking) > 1:
        told = f'at most {free} are free'
    else:
        left = most[lacking[0]]
        verb = 'are' if left > 1 and lacking[0] in ('cores', 'gpus') else 'is'
        told = f'at most {left:g} {verb} free' if left else 'none is free'
    return ' '.join(filter(None, ('needs', needed, where))) + f', {told}'


def _needs(bounds: Bounds) -> str:
    shape = bounds.shape
    text = needs_text({'ranks': shape.ranks, 'cores_per_rank': shape.cores, 'mem_per_rank': shape.mem,
                       'lfs_per_rank': shape.lfs, 'gpus_per_rank': shape.gpus or shape.share / UNITS})
    return f'{text} {bounds.where}' if bounds.where and shape.ranks > 1 else text


def _needed(name: str, shape: Shape) -> str:
    if name == 'share':
        return f'{shape.share / UNITS:g} of a GPU'
    return _free(name, getattr(shape, name))


def _free(name: str, value: float) -> str:
    if name in ('mem', 'lfs'):
        return f'{value:g} MB of {"memory" if name == "mem" else "local storage"}'
    return f'{value:g} of a GPU' if name == 'share' else counted(value, 'core' if name == 'cores' else 'GPU')


def _endless(holding: Sequence[AgentTask]) -> str:
    """Return what the tasks are if all of them run until they are stopped; empty if one ends by itself."""
    modes = {task.description['mode'] for task in holding}
    if not modes or not modes <= set(SERVICE_MODES):
        return ''
    raptor = {RAPTOR_MASTER, RAPTOR_WORKER}
    kinds = ['services'] if modes - raptor else []
    return ', '.join([*kinds, 'RAPTOR masters and workers'] if modes & raptor else kinds)


def _held(lacking: Sequence[str], room: Mapping[str, Any], allocation: Allocation) -> str:
    """Return what is held of the first resource that is lacking."""
    name = 'gpus' if lacking and lacking[0] in ('gpus', 'share') else 'cores'
    total, free = getattr(allocation, name), room[name]
    if lacking and lacking[0] in ('mem', 'lfs'):
        return 'the rest'
    noun = 'GPU' if name == 'gpus' else 'core'
    if free:
        return f'the other {counted(total - free, noun)}' if total - free > 1 else f'the other {noun}'
    return f'the only {noun}' if total == 1 else f'both {noun}s' if total == 2 else f'all {total} {noun}s'


def _reserved(item: Item, nodes: PilotNodes) -> dict[str, Any]:
    """Return which nodes are kept free, for this item or for one ahead of it."""
    kept = nodes.reservation
    if kept.item is None:
        return {}
    names = [nodes.allocation.names[position] for position in kept.positions[:3]]
    more = len(kept.positions) - len(names)
    text = ', '.join(names) + (f' and {more} more' if more else '') + (' are' if len(kept.positions) > 1 else ' is')
    if kept.item is item:
        return {'own': text}
    ahead = nodes.policy.tasks([kept.item])[0].uid
    return {'text': f'; {text} kept free for {ahead}, which has waited longer', 'ahead': [ahead]}


def _explicit(item: Item, nodes: PilotNodes, holders: _Holders) -> dict[str, Any]:
    """Return which tasks hold the slots that a task names."""
    wanted = {(slot[0], kind, index) for slot in item.request.slots for kind, devices in
              (('cores', slot[1]), ('gpus', slot[2])) for index, _ in devices}
    holding = [task.uid for task in holders.placed if any(
        (slot['node_index'], kind, device['index']) in wanted
        for slot in task.placement.slots() for kind in ('cores', 'gpus') for device in slot[kind])]
    names = ', '.join(dict.fromkeys(nodes.allocation.names[slot[0]] for slot in item.request.slots))
    who = ', '.join(holding[:3]) + (f' and {len(holding) - 3} more hold' if len(holding) > 3 else
                                    ' hold' if len(holding) > 1 else ' holds')
    return {'free': {}, 'holders': holding[:MAX_HOLDERS],
            'sentence': f'needs its slots on {names}, ' + (f'which {who}' if holding else 'which are in use')}
