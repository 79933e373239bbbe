"""Statements on the clocks of hosts: parsing, comparison, and the resulting offsets."""

from __future__ import annotations

from dataclasses import dataclass

NEVER = 2**63 - 1
"""The time of events that did not happen."""

CONFLICT = 1.0
"""Seconds between two statements on one clock above which they are in conflict."""


@dataclass(frozen=True)
class Sync:
    """A statement on a clock: its host (name and address), its time, and the seconds by which it is ahead."""

    host: tuple[str, str]
    here: float
    ahead: float
    mode: str


def parse_sync(message: str) -> Sync | None:
    """Return the statement in the message of a `sync_abs` or `sync_rel`; None if it names no host."""
    fields = message.split(':')
    if len(fields) < 5:   # shells write a time only
        return None
    host, mode = (fields[0], ':'.join(fields[1:-3])), fields[-1]
    try:
        here, absolute = float(fields[-3]), float(fields[-2])
    except ValueError:
        return None
    return Sync(host, here, here - absolute if mode == 'ntp' else 0.0, mode)


def conflicts(syncs: list[Sync]) -> list[str]:
    """Return a sentence for each host whose profiles contradict each other on its clock."""
    ahead: dict[tuple[str, str], list[float]] = {}
    for sync in syncs:
        if sync.mode == 'ntp':
            ahead.setdefault(sync.host, []).append(sync.ahead)
    return [f'profiles of the host {name} state that its clock is ahead by {min(found):.3f} s and by {max(found):.3f} s'
            for (name, _), found in ahead.items() if max(found) - min(found) > CONFLICT]


def shift(sent: float | None, answered: float | None) -> float:
    """Return how far to move a clock, in the units of the arguments.

    `sent` is the least time between the sending of a message to it and its arrival, `answered` that for messages in the
    other direction, both as the clocks show them; None if there was no message. No message takes negative time: a clock
    is moved only if one seems to.
    """
    if sent is not None and sent < 0:
        return -sent
    if answered is not None and answered < 0:
        return answered
    return 0
