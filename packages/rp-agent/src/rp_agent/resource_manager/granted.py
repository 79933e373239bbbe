"""What a batch system has given to a job, before it is known what of it tasks may use."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rp_api.errors import PlatformError

_UNITS = {'': 1, 'k': 1024, 'm': 1024**2, 'g': 1024**3, 't': 1024**4}


@dataclass(frozen=True, slots=True)
class Node:
    """A node, or the part of it that the job has."""

    name: str
    cores: int = 0
    """In whatever the batch system counts; 0 if it does not say."""
    gpus: int | None = None
    """None if the batch system does not say."""
    mem: int = 0
    """MB; 0 if the batch system does not say, or the job has all."""


def count_lines(text: str) -> list[Node]:
    """The nodes of a file that has one line for each core: the name of its node is the first word."""
    counts: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        if words and not words[0].startswith('#'):
            counts[words[0]] = counts.get(words[0], 0) + 1
    return [Node(name, cores) for name, cores in counts.items()]


def merged(nodes: Iterable[Node]) -> list[Node]:
    """The nodes in their order; of those with the same name, one that has all that they have."""
    found: dict[str, Node] = {}
    for node in nodes:
        known = found.get(node.name)
        found[node.name] = node if known is None else _sum(known, node)
    return list(found.values())


def _sum(one: Node, other: Node) -> Node:
    gpus = None if one.gpus is None and other.gpus is None else (one.gpus or 0) + (other.gpus or 0)
    return Node(one.name, one.cores + other.cores, gpus, one.mem + other.mem)


def number(text: str, what: str) -> int:
    """The number that a variable or a file has; `PlatformError` if it is none."""
    if not text.strip().isdecimal():
        raise PlatformError(f'{what} is {text!r}, which is no number')
    return int(text)


def repeated(text: str, what: str) -> list[int]:
    """The numbers of a list such as `8(x3),4`: 8, 8, 8, 4."""
    numbers = []
    for part in text.split(','):
        match = re.fullmatch(r'\s*(\d+)(?:\(x(\d+)\))?\s*', part)
        if match is None:
            raise PlatformError(f'{what} is {text!r}, of which {part!r} is not understood')
        numbers += [int(match[1])] * int(match[2] or 1)
    return numbers


def megabytes(text: str, what: str) -> int:
    """The MB of an amount such as `512gb`; a number alone is in bytes, as PBS has it."""
    match = re.fullmatch(r'\s*(\d+)\s*([kmgt]?)[bw]?\s*', text, re.IGNORECASE)
    if match is None:
        raise PlatformError(f'{what} is {text!r}, which is no amount of memory')
    return int(match[1]) * _UNITS[match[2].lower()] // 1024**2


def indices(text: str) -> list[str]:
    """What a list such as `0-2,5` names: 0, 1, 2, 5. Words that are no range stand for themselves."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(','))):
        match = re.fullmatch(r'(\d+)-(\d+)', part)
        found += [str(each) for each in range(int(match[1]), int(match[2]) + 1)] if match else [part]
    return found


def unique(names: Iterable[str]) -> list[str]:
    """The names in their order, each of them once."""
    return list(dict.fromkeys(names))
