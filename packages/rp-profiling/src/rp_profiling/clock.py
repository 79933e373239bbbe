"""Brings the clocks of several hosts together, as far as their profiles tell how they differ.

- `sync_abs` with the mode `ntp` says how far the clock of a host is from absolute time.
- A profile without it may have `sync_rel` rows: the row with the same message in a profile that has a `sync_abs` stands
  for the same moment.
- What is left over shows in effects that come before their causes: then the clock of a pilot is moved by as little as
  brings them into order (`shift`).
"""

from __future__ import annotations

from dataclasses import dataclass

TICK = 1e-7
CONFLICT = 1.0
"""Seconds between two statements on the clock of one host, from which on they contradict each other."""


@dataclass(frozen=True)
class Sync:
    """What a `sync_abs` says: which host its writer was on, and how many seconds the clock there is ahead."""

    host: str
    ahead: float
    mode: str


def parse_sync(message: str) -> Sync | None:
    """What the message of a `sync_abs` says; None if it says nothing of a host."""
    fields = message.split(':')
    if len(fields) < 5:   # shells write a time only
        return None
    host, mode = fields[0], fields[-1]
    try:
        here, absolute = float(fields[-3]), float(fields[-2])
    except ValueError:
        return None
    return Sync(host, here - absolute if mode == 'ntp' else 0.0, mode)


def conflicts(syncs: list[Sync]) -> list[str]:
    """A sentence for each host whose profiles contradict each other on its clock."""
    ahead: dict[str, list[float]] = {}
    for sync in syncs:
        if sync.mode == 'ntp':
            ahead.setdefault(sync.host, []).append(sync.ahead)
    return [f'profiles of the host {host} say that its clock is ahead by {min(found):.3f} s and by {max(found):.3f} s'
            for host, found in ahead.items() if max(found) - min(found) > CONFLICT]


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
