"""The registry of a master's objects: who owns them, who holds them, and from where each host gets them.

Each host gets an object once. The registry answers a request with a file on the same host or with the nearest holder.
A holder has few transfers at a time and the other requests wait for a new holder, so that objects spread as a tree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

MAX_TRANSFERS_PER_HOLDER = 2
"""Transfers of one holder at a time."""

Access = Mapping[str, Any]


@dataclass(frozen=True)
class Holder:
    """A process with a file of an object: where the file can be mapped, and how it is fetched from other hosts.

    `place` is `rp_api.system.shared_directory.place()` of the process. `access` returns the data of
    `rp_api.raptor_link.Access`; it is None for an application, whose files the master sends.
    """

    uid: str
    place: str
    path: str
    access: Callable[[], Access] | None = None


@dataclass
class Wish:
    """A request for an object by a manager; `failed` are holders that did not give it.

    If it is `carried`, the manager gets it from the first one of its worker, unless there is a file on its host.
    """

    place: str
    failed: frozenset[str]
    carried: bool
    sender: str = ''   # of the transfer, once there is one


@dataclass
class Entry:
    """An object: its size, owners, holders, requests without a file, and the managers that have heard of it."""

    size: int
    owners: set[str] = field(default_factory=set)
    holders: dict[str, Holder] = field(default_factory=dict)
    wishes: dict[str, Wish] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)


class Answers(Protocol):
    """The interface for what the registry decides; `uid` is a manager's."""

    def at(self, uid: str, id: bytes, size: int, holder: Holder, *, mapped: bool) -> None:
        """Tell a manager where it gets the object: from a file that it can map, or by a transfer."""

    def carried(self, uid: str, id: bytes, size: int) -> None:
        """Tell a manager that it gets the object from the first one of its worker."""

    def lost(self, uid: str, id: bytes, reason: str) -> None:
        """Tell a manager that it cannot get the object."""

    def forget(self, uid: str, id: bytes) -> None:
        """Tell a manager that the object is dropped."""


class Registry:
    """The objects of one master."""

    def __init__(self, name: str, answers: Answers) -> None:
        self.entries: dict[bytes, Entry] = {}
        self._wanted: dict[bytes, Entry] = {}   # those with requests
        self._name = name
        self._answers = answers

    def own(self, id: bytes, size: int, owner: str) -> Entry:
        """Add an owner of an object, which is new with the first one."""
        entry = self.entries.setdefault(id, Entry(size))
        entry.owners.add(owner)
        return entry

    def hold(self, id: bytes, holder: Holder) -> bool:
        """Add a holder of an object, and answer requests that wait; False if the object was dropped."""
        entry = self.entries.get(id)
        if entry is None:
            return False
        entry.holders[holder.uid] = holder
        entry.wishes.pop(holder.uid, None)
        self._serve_all()
        return True

    def want(self, id: bytes, uid: str, place: str, failed: Collection[str], *,
             carried: bool = False) -> None:
        """Answer the request of a manager, now or later; it ends a transfer to that manager."""
        entry = self.entries.get(id)
        if entry is None:
            self._answers.lost(uid, id, f'{self._name} has no such object: it was released, or its application has '
                                        'ended, or it was put at another master')
            return
        entry.told.add(uid)
        entry.wishes.pop(uid, None)
        entry.wishes[uid] = Wish(place, frozenset(failed), carried)
        self._wanted[id] = entry
        self._serve_all()

    def disown(self, id: bytes, owner: str) -> bool:
        """Remove an owner of an object; with the last one the object is dropped, and True returned."""
        entry = self.entries.get(id)
        if entry is None:
            return False
        entry.owners.discard(owner)
        entry.holders.pop(owner, None)
        if entry.owners:
            self._serve_all()
            return False
        del self.entries[id]
        self._wanted.pop(id, None)
        for uid in entry.wishes:
            self._answers.lost(uid, id, f'it was dropped at {self._name}: it was released, or its application has '
                                        'ended')
        for uid in entry.told:
            self._answers.forget(uid, id)
        self._serve_all()
        return True

    def leave(self, uid: str) -> list[bytes]:
        """Remove a process with all that it owns, holds and wants, and return the objects that are dropped."""
        dropped = [id for id, entry in list(self.entries.items()) if uid in entry.owners and self.disown(id, uid)]
        for entry in self.entries.values():
            entry.holders.pop(uid, None)
            entry.wishes.pop(uid, None)
            entry.told.discard(uid)
            for wish in entry.wishes.values():
                if wish.sender == uid:
                    wish.sender, wish.failed = '', wish.failed | {uid}
        self._serve_all()
        return dropped

    def _serve_all(self) -> None:
        """Answer the requests that can be answered now."""
        sending: dict[str, int] = {}
        self._wanted = {id: entry for id, entry in self._wanted.items() if entry.wishes}
        for entry in self._wanted.values():
            for wish in entry.wishes.values():
                sending[wish.sender] = sending.get(wish.sender, 0) + 1
        for id, entry in self._wanted.items():
            for uid in [uid for uid, wish in entry.wishes.items() if not wish.sender]:
                self._serve(id, entry, uid, sending)

    def _serve(self, id: bytes, entry: Entry, uid: str, sending: dict[str, int]) -> None:
        wish = entry.wishes[uid]
        near = [holder for holder in entry.holders.values()
                if holder.place == wish.place and holder.uid not in wish.failed]
        if near:
            del entry.wishes[uid]
            self._answers.at(uid, id, entry.size, near[0], mapped=True)
            return
        if any(other.sender and other.place == wish.place for other in entry.wishes.values()):
            return   # another manager of the host gets it
        if wish.carried:
            wish.sender = uid   # no holder, whose transfers are counted
            self._answers.carried(uid, id, entry.size)
            return
        remote = [holder for holder in entry.holders.values() if holder.access]
        free = [holder for holder in remote if sending.get(holder.uid, 0) < MAX_TRANSFERS_PER_HOLDER]
        if free:   # a holder that has failed is tried again if there is no other one
            best = min(free, key=lambda holder: (holder.uid in wish.failed, sending.get(holder.uid, 0)))
            entry.wishes[uid] = Wish(wish.place, wish.failed, carried=False, sender=best.uid)
            sending[best.uid] = sending.get(best.uid, 0) + 1
            self._answers.at(uid, id, entry.size, best, mapped=False)
