"""The backfilling task scheduler: binds tasks to active pilots only, as many as can run there at once.

Tasks wait in groups of equal needs, in the order of submission. When resources become free, the heads of the groups are
tried by priority and age, so that a refill costs as much as the number of groups and of tasks that it binds. Smaller
tasks pass an older one that finds no room, up to a limit: then a place is reserved for it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from rp_client.scheduler.base import Binding, Request, TaskScheduler
from rp_client.scheduler.places import Need
from rp_client.scheduler.room import Node, Room

OVERSUBSCRIPTION = 'RADICAL_PILOT_BF_OVERSUBSCRIPTION'
HIGH_WATER_MARK = 'RADICAL_PILOT_BACKFILLING_HWM'

OVERTAKING_TASKS_PER_CORE = 10
"""Tasks per core of a place that may pass an older task before the place is reserved for that task."""


class _Kind(NamedTuple):
    """The requested pilot or partition (empty: any) and the needs that the tasks of a group share."""

    wanted: str
    need: Need


class _Place(NamedTuple):
    """An active pilot or partition."""

    pilot: str
    uid: str
    number: int | None
    nodes: Sequence[Node]
    room: Room


class _Head(NamedTuple):
    """The first task of a group; heads are tried in their order."""

    priority: int   # negative: higher priorities go first
    order: int
    uid: str
    kind: _Kind


class _Targets:
    """The places that tasks of a kind may go to in one refill: in turn, first where they can run at once."""

    def __init__(self, need: Need, places: Sequence[_Place], *, counted: bool) -> None:
        self._need = need
        self._counted = counted
        fitting = [place for place in places if not counted or place.room.capacity(need)]
        self.fits = bool(fitting) and counted
        self._free = deque(place for place in fitting if not counted or not place.room.full)
        self._busy = deque(self._free)

    def take(self, uid: str, reserved: str) -> str:
        """Take resources for a task in a place that is not reserved, and return its uid; empty if there are none."""
        return self._next(self._free, Room.take, uid, reserved) or self._next(self._busy, Room.queue, uid, reserved)

    def _next(self, places: deque[_Place], accept: Callable[[Room, str, Need], bool], uid: str, reserved: str) -> str:
        while places:
            place = places[0]
            if not self._counted or (place.uid != reserved and accept(place.room, uid, self._need)):
                places.rotate(-1)
                return place.uid
            places.popleft()
        return ''


class Backfilling(TaskScheduler):
    """Binds tasks to active pilots, as many as can run at once, and more when tasks have ended.

    Raises:
        ValueError: The environment variable that sets the oversubscription is not a percentage.
    """

    follows = True

    def __init__(self) -> None:
        super().__init__()
        self._oversubscription = oversubscription(os.environ)
        self._places: dict[str, _Place] = {}
        self._pending: set[str] = set()   # pilots that are not active, or have such partitions
        self._groups: dict[_Kind, list[tuple[int, str]]] = {}   # heaps; entries of tasks that left are skipped
        self._kinds: dict[str, _Kind] = {}   # of waiting tasks
        self._bound: dict[str, str] = {}
        self._tasks: dict[str, dict[str, Need]] = {}   # bound tasks, by place
        self._orders: dict[str, int] = {}    # of waiting and bound tasks
        self._count = 0
        self._turn = 0
        self._passed: _Head | None = None   # the oldest task that found no room
        self._passing = 0    # number of tasks that were bound since although they are behind it
        self._reserved = ''  # the place that is kept free for it
        self._released = ''  # a place that was reserved, and has not been filled since

    def submit(self, requests: Iterable[Request]) -> list[Binding]:
        """Accept tasks, and bind those that can run now."""
        changed: dict[_Kind, None] = {}
        kind = _Kind('', Need())
        for request in requests:
            need = self.need(request.uid)
            if kind.need is not need or kind.wanted != request.pilot:   # consecutive tasks share it
                kind = _Kind(request.pilot, need)
            if request.uid not in self._orders:
                self._count += 1
                self._orders[request.uid] = self._count
            self._waiting[request.uid] = request
            self._kinds[request.uid] = kind
            entry, head = (self._orders[request.uid], request.uid), self._head(kind)
            if head is None or entry < head:   # the others wait behind a task that finds no room
                changed[kind] = None
            heappush(self._groups.setdefault(kind, []), entry)
        return self._fill(self._places, changed) if changed else []

    def retry(self) -> list[Binding]:
        """Bind the waiting tasks that can run now."""
        return self._fill(self._places, self._groups)

    def remove_pilots(self, pilots: Iterable[str]) -> None:
        """Remove pilots; the tasks that are bound to them stay there."""
        super().remove_pilots(pilots)
        if self._reserved and self._places[self._reserved].pilot not in self.pilots:
            self._begin_passing(None)

    def forget(self, uids: Iterable[str]) -> list[str]:
        """Remove waiting tasks."""
        gone = super().forget(uids)
        for uid in gone:
            del self._kinds[uid], self._orders[uid]
            self._no_longer_waits(uid)
        return gone

    def places_changed(self, pilot: str, places: Mapping[str, tuple[int | None, Sequence[Node]]], *,
                       pending: bool) -> None:
        """Use the active places of a pilot, and count the tasks that are bound to them."""
        (self._pending.add if pending else self._pending.discard)(pilot)
        for uid in [place.uid for place in self._places.values() if place.pilot == pilot and place.uid not in places]:
            del self._places[uid]
        self._begin_passing(None)
        for uid, (number, nodes) in places.items():
            known = self._places.get(uid)
            if known is None or known.nodes != nodes:
                room = Room(nodes, self._oversubscription)
                for task, need in self._tasks.get(uid, {}).items():
                    room.hold(task, need)
                self._places[uid] = _Place(pilot, uid, number, nodes, room)

    def restored(self, uid: str, place: str) -> None:
        """Count a task that an earlier application has bound."""
        self._count += 1
        self._orders[uid] = self._count
        self._bind(uid, place, self.need(uid))
        if place in self._places:
            self._places[place].room.hold(uid, self.need(uid))

    def left(self, uids: Iterable[str]) -> list[Binding]:
        """Free the resources of tasks, and bind waiting tasks to the places where they ran."""
        freed: dict[str, list[str]] = {}
        for uid in uids:
            place = self._unbind(uid)
            if place:
                freed.setdefault(place, []).append(uid)
            if uid not in self._waiting:
                self._orders.pop(uid, None)
        places = self._free(freed)
        if self._released in self._places:
            places.append(self._released)
        self._released = ''
        return self._fill(places, self._groups)

    def returned(self, uids: Iterable[str]) -> None:
        """Free the resources of tasks that are submitted again; they keep their order."""
        freed: dict[str, list[str]] = {}
        for uid in uids:
            freed.setdefault(self._unbind(uid), []).append(uid)
        self._free(freed)

    def check(self) -> None:
        """Raise AssertionError if the collections contradict each other."""
        assert self._kinds.keys() == self._waiting.keys()
        assert self._orders.keys() == self._waiting.keys() | self._bound.keys()
        assert not self._waiting.keys() & self._bound.keys()
        assert {uid: place for place, tasks in self._tasks.items() for uid in tasks} == self._bound
        for kind, group in self._groups.items():
            assert {uid for uid, other in self._kinds.items() if other == kind} <= {uid for _, uid in group}
        for place in self._places.values():
            place.room.check()
            assert place.room.running + place.room.waiting <= len(self._tasks.get(place.uid, ()))

    # places

    def _free(self, freed: Mapping[str, Collection[str]]) -> list[str]:
        """Free the resources of tasks by place, and return the places that are in use."""
        found = [uid for uid in freed if uid in self._places]
        for uid in found:
            self._places[uid].room.give(freed[uid])
        return found

    def _bind(self, uid: str, place: str, need: Need) -> None:
        self._bound[uid] = place
        self._tasks.setdefault(place, {})[uid] = need

    def _unbind(self, uid: str) -> str:
        place = self._bound.pop(uid, '')
        if place:
            tasks = self._tasks[place]
            del tasks[uid]
            if not tasks:
                del self._tasks[place]
        return place

    def _eligible(self, kind: _Kind, places: Iterable[str]) -> list[_Place]:
        """Return the places that tasks of a kind may go to, full or not."""
        wanted, partition = kind.wanted, kind.need.partition
        return [place for place in (self._places[uid] for uid in places)
                if place.pilot in self.pilots and (not wanted or wanted in (place.pilot, place.uid))
                and (partition is None or place.number in (None, partition))]

    def _hopeless(self, kind: _Kind, places: Sequence[_Place]) -> bool:
        """Return whether no pilot in use can run tasks of a kind, and none that may is still to become active."""
        may_come = self._pending if not kind.wanted else {
            pilot for pilot in self._pending if kind.wanted == pilot or kind.wanted.startswith(f'{pilot}.')}
        return bool(places) and may_come.isdisjoint(self.pilots) and not any(
            place.room.capacity(kind.need) for place in places)

    # filling

    def _fill(self, places: Collection[str], kinds: Collection[_Kind]) -> list[Binding]:
        """Bind tasks of these kinds to these places, the oldest first, as long as there is room."""
        if not places or not kinds:
            return []
        self._turn += 1
        targets: dict[_Kind, _Targets] = {}
        heads = [head for kind in list(kinds) if (head := self._head_of(kind))]
        heapify(heads)
        bound = []
        while heads:
            head = heads[0]
            target = targets.get(head.kind)
            if target is None:
                target = targets[head.kind] = self._targets(head.kind, places)
            place = target.take(head.uid, '' if head == self._passed else self._reserved)
            if not place:
                heappop(heads)
                if self._passed is None and target.fits:
                    self._begin_passing(head)
                if all(self._places[uid].room.full for uid in places):
                    heads = [head for head in heads if not head.kind.need.counted]
                    heapify(heads)
                continue
            self._move(head, place)
            bound.append(Binding(head.uid, place))
            following = self._head_of(head.kind)
            if following:
                heapreplace(heads, following)
            else:
                heappop(heads)
        if self._released:
            bound += self.left([])
        return bound

    def _targets(self, kind: _Kind, places: Collection[str]) -> _Targets:
        eligible = self._eligible(kind, places)
        if kind.need.counted and self._hopeless(kind, eligible):   # the agent fails the task, with the reason
            return _Targets(kind.need, [max(eligible, key=lambda place: place.room.cores)], counted=False)
        turn = self._turn % len(eligible) if eligible else 0
        return _Targets(kind.need, eligible[turn:] + eligible[:turn], counted=kind.need.counted)

    def _head(self, kind: _Kind) -> tuple[int, str] | None:
        """Return order and uid of the first waiting task of a kind."""
        group = self._groups.get(kind, [])
        while group and self._kinds.get(group[0][1]) != kind:   # it was cancelled
            heappop(group)
        if group:
            return group[0]
        self._groups.pop(kind, None)
        return None

    def _head_of(self, kind: _Kind) -> _Head | None:
        head = self._head(kind)
        return _Head(-kind.need.priority, *head, kind) if head else None

    def _move(self, head: _Head, place: str) -> None:
        """Bind a task that waits."""
        heappop(self._groups[head.kind])
        del self._waiting[head.uid], self._kinds[head.uid]
        self._bind(head.uid, place, head.kind.need)
        self._no_longer_waits(head.uid)
        if self._passed is not None and head > self._passed and head.kind.need.counted:
            self._passing += 1
            if not self._reserved:
                self._reserve(self._passed)

    # reservation

    def _begin_passing(self, head: _Head | None) -> None:
        """Count the tasks that pass this one from now on; forget an earlier one, and the place reserved for it."""
        if self._reserved:
            self._released, self._reserved = self._reserved, ''
        self._passed = head
        self._passing = 0

    def _no_longer_waits(self, uid: str) -> None:
        if self._passed is not None and uid == self._passed.uid:
            self._begin_passing(None)

    def _reserve(self, head: _Head) -> None:
        """Reserve a place for a task that enough others have passed."""
        need = head.kind.need
        fitting = [place for place in self._eligible(head.kind, self._places) if place.room.capacity(need)]
        if fitting:
            place = max(fitting, key=lambda place: place.room.free_cores)
            if self._passing > OVERTAKING_TASKS_PER_CORE * place.room.cores:
                self._reserved = place.uid


def oversubscription(environment: Mapping[str, str]) -> float:
    """Return the percentage of tasks that may wait in an agent, of those that can run there at once.

    Raises `ValueError` if a variable is not a percentage.
    """
    if environment.get(OVERSUBSCRIPTION):
        return _percentage(OVERSUBSCRIPTION, environment[OVERSUBSCRIPTION], 0)
    if environment.get(HIGH_WATER_MARK):
        return _percentage(HIGH_WATER_MARK, environment[HIGH_WATER_MARK], 100) - 100
    return 0.0


def _percentage(name: str, value: str, least: int) -> float:
    text = value.strip().removesuffix('%')
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not least <= found < float('inf'):
        raise ValueError(f'the environment variable {name} is {value!r}, it must be a percentage of at least {least}')
    return found
