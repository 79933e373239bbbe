"""Parser for compressed lists of host names, as Slurm writes them: `n[001-003,7],login,rack[0-1]node[1-2]-ib`."""

from __future__ import annotations

import itertools
import re

from rp_api.errors import PlatformError

LIMIT = 1_000_000
"""Maximum number of hosts in one list; a longer list is a mistake that would exhaust the memory."""


def expand(text: str) -> list[str]:
    """Return the host names in the list, in order; raise `PlatformError` if the list is malformed."""
    return [name for part in _split(text) for name in _expand_one(part, text)]


def _split(text: str) -> list[str]:
    """Split the list at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == '[') - (character == ']')
        if depth not in (0, 1):
            raise _broken(text, 'its brackets do not match')
        if character == ',' and not depth:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        raise _broken(text, 'its brackets do not match')
    return [part for part in (part.strip() for part in [*parts, text[start:]]) if part]


def _expand_one(part: str, text: str) -> list[str]:
    """Return the names of one part: all combinations of the values of its brackets."""
    pieces = [_numbers(piece[1:-1], text) if piece.startswith('[') else [piece]
              for piece in re.split(r'(\[[^\]]*\])', part)]
    total = 1
    for piece in pieces:
        total *= len(piece)
    if total > LIMIT:
        raise _broken(text, f'it stands for {total} hosts')
    return [''.join(combination) for combination in itertools.product(*pieces)]


def _numbers(ranges: str, text: str) -> list[str]:
    """Return the numbers of `001-003,7`, with leading zeros."""
    found: list[str] = []
    for part in ranges.split(','):
        match = re.fullmatch(r'\s*(\d+)(?:-(\d+)(?:[:/](\d+))?)?\s*', part)
        if match is None:
            raise _broken(text, f'{part!r} is not a range of numbers')
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or not step or last - first > LIMIT:
            raise _broken(text, f'{part!r} is not a range of numbers')
        found += [f'{each:0{len(match[1])}}' for each in range(first, last + 1, step)]
    return found


def _broken(text: str, why: str) -> PlatformError:
    return PlatformError(f'the list of hosts {text[:200]!r} cannot be parsed: {why}')
