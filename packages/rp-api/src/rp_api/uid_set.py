"""A set of uids that takes little memory for those that end in a number, however many there are."""

from __future__ import annotations

from collections.abc import Iterable

_DIGITS = 3
_NUMBERS = {f'{number:0{_DIGITS}d}': number for number in range(10**_DIGITS)}


class UidSet:
    """Uids that were added; exact, and never smaller.

    Uids are numbered as a rule, so what comes before the last three digits is kept once for a thousand of them: that is
    less than a byte for each of many. Other uids are kept as they are.
    """

    def __init__(self) -> None:
        self._numbered: dict[str, bytearray] = {}
        self._others: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._numbered or self._others)

    def add(self, uid: str) -> bool:
        """Add a uid; False if it was there."""
        number = _number(uid)
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
    """The number in which a uid ends; -1 if there is none."""
    return _NUMBERS.get(uid[-_DIGITS:], -1)
