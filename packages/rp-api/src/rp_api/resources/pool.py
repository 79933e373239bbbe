"""The cores, or the GPUs, of one node, and the taken share of each.

Shares are counted in integer units, so that ten times 0.1 fills a device exactly. The number of units in a device is
divisible by 1 to 20 and by a million: decimals with six places and the usual fractions are integers. Other shares are
rounded down, so that a device always holds n shares of 1/n (for all n up to 2,000).

Free devices are kept as a bitmap, so that finding whole devices, the usual request, does not iterate over all devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Any

from rp_api.constants import BUSY, DOWN, FREE
from rp_api.errors import attribute_type_error
from rp_api.resources.slots import RO, occupation

UNITS = 2_909_907_000_000
ALL = -1  # the mask that allows every device

_EPSILON = 0.001  # units; larger than the float error of a six-place decimal, and negligible


def to_units(part: float) -> int:
    """Return the number of units in this share of a device."""
    return int(part * UNITS + _EPSILON)


def bits(mask: int) -> Iterator[int]:
    """Yield the indices of the set bits in ascending order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Device(RO):
    """A core or GPU as users see it on a node; setting its occupation updates the pool."""

    __slots__ = ('_pool',)
    _pool: Pool

    def __init__(self, pool: Pool, index: int, part: float | None) -> None:
        dict.update(self, index=index, occupation=part)
        self._pool = pool

    def __setitem__(self, name: str, value: Any) -> None:
        if name != 'occupation':
            raise attribute_type_error(f'{name} of a device that belongs to a node cannot be set')
        self._pool.mark(self['index'], self._cast(name, value))

    def __reduce__(self) -> tuple[Any, ...]:
        return RO, (dict(self),)  # a copy does not belong to the node


class Pool:
    """The devices of one kind on a node, by index; indices may have gaps.

    `used` are the taken units by index; `free` and `usable` are bitmaps of the devices that are entirely free and of
    those that are not down. The owner holds `lock` around all calls except `mark`, which acquires it; `changed` is
    called after a mark, without the lock.
    """

    __slots__ = ('changed', 'free', 'lock', 'usable', 'used', 'views')

    def __init__(self, devices: Iterable[tuple[int, float | None]], lock: Lock,
                 changed: Callable[[], None]) -> None:
        self.views: dict[int, Device] = {}
        self.used: dict[int, int] = {}
        self.free = self.usable = 0
        self.lock, self.changed = lock, changed
        for index, part in devices:
            if index in self.views:
                raise attribute_type_error(f'a node cannot have two devices with the index {index}')
            self.views[index] = Device(self, index, part)
            self._mark(index, part)

    def mark(self, index: int, part: float | None) -> None:
        """Set the occupation of a device, replacing the previous one."""
        with self.lock:
            self._mark(index, part)
        self.changed()

    def _mark(self, index: int, part: float | None) -> None:
        bit = 1 << index
        self.used[index] = to_units(part or FREE)
        self.usable = self.usable & ~bit if part is None else self.usable | bit
        self.free = self.free | bit if part == FREE else self.free & ~bit
        dict.__setitem__(self.views[index], 'occupation', part)

    def find(self, count: int, need: int, mask: int = ALL) -> list[int] | None:
        """Return the ascending indices of `count` devices with at least `need` free units, or None.

        A single shared device is the fullest possible, which preserves whole devices. Several are the emptiest ones:
        only this lets a node hold as many such groups as `room` returns.
        """
        if need == UNITS:
            free = self.free & mask
            return list(islice(bits(free), count)) if free.bit_count() >= count else None
        used, limit = self.used, UNITS - need
        fitting = [(used[index], index) for index in bits(self.usable & mask) if used[index] <= limit]
        if len(fitting) < count:
            return None
        if count == 1:
            return [max(fitting, key=lambda each: (each[0], -each[1]))[1]]
        return sorted(index for _, index in sorted(fitting)[:count])

    def room(self, count: int, need: int, mask: int = ALL) -> int:
        """Return how many groups of `count` devices with `need` free units each can be found one after the other."""
        if need == UNITS:
            return (self.free & mask).bit_count() // count
        return _groups([(UNITS - self.used[index]) // need for index in bits(self.usable & mask)], count)

    def most(self, count: int, need: int, mask: int = ALL) -> int:
        """Return `room` for the case that nothing is taken."""
        number = (self.usable & mask).bit_count()
        return number * (UNITS // need) // count if number >= count else 0

    def take(self, indices: Sequence[int], units: Sequence[int]) -> None:
        """Add the units to those taken of the devices."""
        for index, amount in zip(indices, units, strict=True):
            self.used[index] += amount
            self._show(index)

    def give(self, indices: Sequence[int], units: Sequence[int]) -> None:
        """Subtract the units from those taken of the devices; a device that is down stays down."""
        for index, amount in zip(indices, units, strict=True):
            self.used[index] = max(0, self.used[index] - amount)
            self._show(index)

    def _show(self, index: int) -> None:
        """Update the bitmap and the visible occupation from `used`."""
        bit, used = 1 << index, self.used[index]
        if self.usable & bit:
            self.free = self.free & ~bit if used else self.free | bit
            dict.__setitem__(self.views[index], 'occupation', BUSY if used == UNITS else used / UNITS)

    def flaw(self, index: int, amount: int) -> str | None:
        """Return the reason why `amount` more units of this device cannot be taken, or None."""
        view = self.views.get(index)
        if view is None:
            return 'does not exist'
        if view['occupation'] is DOWN:
            return 'is down'
        if self.used[index] + amount > UNITS:
            return f'is in use ({view["occupation"]:g} of it, {amount / UNITS:g} asked)'
        return None

    def check(self) -> None:
        """Raise an AssertionError if bitmaps, counts and visible occupations differ."""
        for index, view in self.views.items():
            bit, used = 1 << index, self.used[index]
            shown = occupation(view['occupation'])
            ensure(0 <= used <= UNITS, f'{index}: {used} units taken')
            ensure(bool(self.usable & bit) == (shown is not DOWN), f'{index}: down or not?')
            ensure(bool(self.free & bit) == (shown == FREE), f'{index}: free or not?')
            ensure(shown is None or to_units(shown) == used, f'{index}: shows {shown}, {used} units taken')
        known = sum(1 << index for index in self.views)
        ensure(not (self.free | self.usable) & ~known, 'devices that do not exist are free')


def ensure(condition: bool, message: str) -> None:
    """Raise an AssertionError if an invariant is violated (a statement `assert` may be disabled)."""
    if not condition:
        raise AssertionError(message)


def _groups(shares: Sequence[int], count: int) -> int:
    """Return the maximum number of groups of `count` different devices, if device i can be in `shares[i]` groups.

    k groups are possible exactly if sum(min(share, k)) >= k * count; this is monotonic, hence bisection.
    """
    low, high = 0, sum(shares) // count
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(each, middle) for each in shares) >= middle * count:
            low = middle
        else:
            high = middle - 1
    return low
