"""A compact set of uids that end in a number."""

from __future__ import annotations

from collections.abc import Iterable

_DIGITS = 3
_NUMBERS = {f'{number:0{_DIGITS}d}': number for number in range(10**_DIGITS)}


class UidSet:
    """A set of uids that only grows.

    Most uids are numbered, so the part before the last three digits is stored once with a bitmap for 1000 uids: less
    than a byte for each. Other uids are stored as they are.
    """

    def __init__(self) -> None:
        self._numbered: dict[str, bytearray] = {}
        self._others: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._numbered or self._others)

    def add(self, uid: str) -> bool:
        """Add a uid; return False if it was present."""
        number = _NUMBERS.get(uid[-_DIGITS:], -1)   # not `_number`: called for each of many tasks
        if number < 0:
            before = len(self._others)
            self._others.add(uid)
            return len(self._others) > before
        start = uid[:-_DIGITS]
        bits = self._numbered.get(start)
        if bits is None:
            bits = self._numbered[start] = bytearray(10**_DIGITS // 8)
        bit = 1 << (number & 7)
        new = not bits[number >> 3] & bit
        bits[number >> 3] |= bit
        return new

    def add_each(self, uids: Iterable[str]) -> list[bool]:
        """Add uids; return for each whether it was new."""
        found = []
        before: str = ''
        bits: bytearray | None = None
        for uid in uids:
            number = _NUMBERS.get(uid[-_DIGITS:], -1)
            start = uid[:-_DIGITS]
            if number < 0 or bits is None or start != before:   # most uids are like the one before
                found.append(self.add(uid))
                before, bits = start, self._numbered.get(start)
                continue
            bit = 1 << (number & 7)
            found.append(not bits[number >> 3] & bit)
            bits[number >> 3] |= bit
        return found

    def update(self, uids: Iterable[str]) -> None:
        """Add all of these uids."""
        for uid in uids:
            self.add(uid)

    def __contains__(self, uid: str) -> bool:
        number = _number(uid)
        if number < 0:
            return uid in self._others
        bits = self._numbered.get(uid[:-_DIGITS])
        return bits is not None and bool(bits[number >> 3] >> (number & 7) & 1)


def _number(uid: str) -> int:
    """Return the last three digits of a uid as a number; -1 if they are not digits."""
    return _NUMBERS.get(uid[-_DIGITS:], -1)
