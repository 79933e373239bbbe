"""What profiles say of the clocks of their hosts, as values: parsed, compared, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass

NEVER = 2**63 - 1
"""The time of what did not happen."""

CONFLICT = 1.0
"""Seconds between two statements on the clock of one host, from which on they contradict each other."""


@dataclass(frozen=True)
class Sync:
    """What a statement on a clock says: whose it is, by name and address, and how many seconds it was ahead when."""

    host: tuple[str, str]
    here: float
    ahead: float
    mode: str


def parse_sync(message: str) -> Sync | None:
    """What the message of a `sync_abs` or `sync_rel` says; None if it says nothing of a host."""
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
    """A sentence for each host whose profiles contradict each other on its clock."""
    ahead: dict[tuple[str, str], list[float]] = {}
    for sync in syncs:
        if sync.mode == 'ntp':
            ahead.setdefault(sync.host, []).append(sync.ahead)
    return [f'profiles of the host {name} say that its clock is ahead by {min(found):.3f} s and by {max(found):.3f} s'
            for (name, _), found in ahead.items() if max(found) - min(found) > CONFLICT]


def shift(sent: float | None, answered: float | None) -> float:
    """How far to move a clock, in the units of the arguments.

    `sent` is the least time between what was sent to it and its arrival there, `answered` that between what came from
    it and its arrival, both as the clocks have it; None if there was nothing. A message takes no negative time: without
    negative ones, nothing is moved.
    """
    if sent is not None and sent < 0:
        return -sent
    if answered is not None and answered < 0:
        return answered
    return 0
