"""Nodes as a batch system grants them, and parsers for the forms in which batch systems list them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from rp_api.errors import PlatformError

MAX_HOSTS = 1_000_000
"""Maximum number of hosts in one list; a longer list is a mistake that would exhaust the memory."""

_UNITS = {'': 1, 'k': 1024, 'm': 1024**2, 'g': 1024**3, 't': 1024**4}


@dataclass(frozen=True, slots=True)
class Node:
    """A node, or the part of it that is granted to the job."""

    name: str
    cores: int = 0
    """Number of cores in the unit of the batch system; 0 if unknown."""
    gpus: int | None = None
    """Number of GPUs; None if unknown."""
    mem: int = 0
    """Memory in MB; 0 if unknown, or if the job has all memory of the node."""


def count_lines(text: str) -> list[Node]:
    """Return the nodes of a file with one line per core; the first word of a line is the name of the node."""
    counts: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        if words and not words[0].startswith('#'):
            counts[words[0]] = counts.get(words[0], 0) + 1
    return [Node(name, cores) for name, cores in counts.items()]


def merged(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes in their order, with the resources of nodes of the same name added up."""
    found: dict[str, Node] = {}
    for node in nodes:
        known = found.get(node.name)
        found[node.name] = node if known is None else _sum(known, node)
    return list(found.values())


def _sum(one: Node, other: Node) -> Node:
    gpus = None if one.gpus is None and other.gpus is None else (one.gpus or 0) + (other.gpus or 0)
    return Node(one.name, one.cores + other.cores, gpus, one.mem + other.mem)


def number(text: str, what: str) -> int:
    """Return the number in `text`; raise `PlatformError`, which names `what`, if it is not a number."""
    if not text.strip().isdecimal():
        raise PlatformError(f'{what} must be a number, not {text!r}')
    return int(text)


def repeated(text: str, what: str) -> list[int]:
    """Return the numbers of a list such as `8(x3),4`: 8, 8, 8, 4."""
    numbers = []
    for part in text.split(','):
        match = re.fullmatch(r'\s*(\d+)(?:\(x(\d+)\))?\s*', part)
        if match is None:
            raise PlatformError(f'{what} is {text!r}, of which {part!r} is not a number such as 8 or 8(x3)')
        numbers += [int(match[1])] * int(match[2] or 1)
    return numbers


def megabytes(text: str, what: str) -> int:
    """Return an amount such as `512gb` in MB. A number without a unit is in bytes, as in PBS."""
    match = re.fullmatch(r'\s*(\d+)\s*([kmgt]?)[bw]?\s*', text, re.IGNORECASE)
    if match is None:
        raise PlatformError(f'{what} must be an amount of memory such as 512gb, not {text!r}')
    return int(match[1]) * _UNITS[match[2].lower()] // 1024**2


def indices(text: str) -> list[str]:
    """Return the entries of a list such as `0-2,5`: 0, 1, 2, 5. An entry that is not a range is kept as it is."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(','))):
        match = re.fullmatch(r'(\d+)-(\d+)', part)
        found += [str(each) for each in range(int(match[1]), int(match[2]) + 1)] if match else [part]
    return found


def expand(text: str) -> list[str]:
    """Return the host names in a list as Slurm writes them: `n[001-003,7],login,rack[0-1]node[1-2]-ib`.

    Raises `PlatformError` if the list is malformed.
    """
    return [name for part in _split_hosts(text) for name in _expand_one(part, text)]


def _split_hosts(text: str) -> list[str]:
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
    pieces = [_host_numbers(piece[1:-1], text) if piece.startswith('[') else [piece]
              for piece in re.split(r'(\[[^\]]*\])', part)]
    total = 1
    for piece in pieces:
        total *= len(piece)
    if total > MAX_HOSTS:
        raise _broken(text, f'it stands for {total} hosts')
    return [''.join(combination) for combination in itertools.product(*pieces)]


def _host_numbers(ranges: str, text: str) -> list[str]:
    """Return the numbers of `001-003,7`, with leading zeros."""
    found: list[str] = []
    for part in ranges.split(','):
        match = re.fullmatch(r'\s*(\d+)(?:-(\d+)(?:[:/](\d+))?)?\s*', part)
        if match is None:
            raise _broken(text, f'{part!r} is not a range of numbers')
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or not step or last - first > MAX_HOSTS:
            raise _broken(text, f'{part!r} is not a range of numbers')
        found += [f'{each:0{len(match[1])}}' for each in range(first, last + 1, step)]
    return found


def _broken(text: str, why: str) -> PlatformError:
    return PlatformError(f'the list of hosts {text[:200]!r} cannot be parsed: {why}')
