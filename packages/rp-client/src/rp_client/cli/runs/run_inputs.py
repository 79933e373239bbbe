"""The command line of `rp run`: sources of inputs, and what replaces the placeholders of the command."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

SOURCES = (':::', ':::+', '::::', '::::+')
"""Words that begin a source: of inputs, and of files with an input in each line; with `+`, linked to the one before."""

_PLACEHOLDER = re.compile(r'\{(\d*)(//|/\.|/|\.)?\}|\{#\}')

_CHANGES: dict[str, Callable[[str], str]] = {
    '': lambda text: text,
    '/': os.path.basename,
    '//': lambda text: os.path.dirname(text) or '.',
    '.': lambda text: os.path.splitext(text)[0],
    '/.': lambda text: os.path.splitext(os.path.basename(text))[0],
}

Row = tuple[str, ...]


class Job(NamedTuple):
    """A task to run: its number, from 1, and the words of its command."""

    number: int
    words: list[str]

    @property
    def line(self) -> str:
        """The command as a line of a shell."""
        return shlex.join(self.words)


class UsageError(Exception):
    """The command line cannot be used; the text says why."""


def split(words: Sequence[str]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the words of the command, and the sources, each with the word that begins it."""
    command: list[str] = []
    sources: list[tuple[str, list[str]]] = []
    for word in words:
        if word in SOURCES:
            sources.append((word, []))
        elif sources:
            sources[-1][1].append(word)
        else:
            command.append(word)
    if not command:
        raise UsageError('there is no command')
    if sources and sources[0][0].endswith('+'):
        raise UsageError(f'{sources[0][0]} is linked to the source before it, but there is none')
    return command, sources


def rows(sources: Sequence[tuple[str, list[str]]], files: Sequence[str]) -> Iterator[Row]:
    """Return the inputs of each task: all combinations of the sources, the last one changes fastest.

    Without a source, the inputs are the lines of standard input, or one task without input if that is a terminal.
    """
    groups: list[list[Row]] = []
    for kind, words in [*[('::::', [file]) for file in files], *sources]:
        for values in map(_lines, words) if kind.startswith('::::') else [words]:
            if kind.endswith('+'):   # as many as the shorter one has
                groups[-1] = [(*row, value) for row, value in zip(groups[-1], values, strict=False)]
            else:
                groups.append([(value,) for value in values])
    if groups:
        return (tuple(itertools.chain.from_iterable(parts)) for parts in itertools.product(*groups))
    if sys.stdin is None or sys.stdin.isatty():
        return iter([()])
    return ((line,) for line in _lines('-'))


def _lines(path: str) -> list[str]:
    if path == '-':
        return _split(sys.stdin.read()) if sys.stdin is not None else []   # closed by the shell
    with open(path, encoding='utf-8', errors='surrogateescape', newline='\n') as file:
        return _split(file.read())


def _split(text: str) -> list[str]:
    """Return lines, which end with a line feed only: `str.splitlines` knows other ends, which file names may have."""
    lines = [line.removesuffix('\r') for line in text.split('\n')]
    return lines if lines[-1] else lines[:-1]


def jobs(command: Sequence[str], inputs: Iterator[Row], *, shell: bool) -> Iterator[Job]:
    """Yield the tasks. For a shell, the words of the command are one line, in which inputs are quoted."""
    make: Callable[[int, Row], list[str]] | None = None
    for number, row in enumerate(inputs, 1):
        if make is None:
            make = _maker([' '.join(command)] if shell else command, len(row), shlex.quote if shell else str)
        words = make(number, row)
        yield Job(number, ['/bin/sh', '-c', words[0]] if shell else words)


def varying(command: Sequence[str], width: int, *, shell: bool) -> list[int]:
    """Return the positions of the words that differ between the tasks of a command with so many inputs."""
    if shell:
        return [2]   # of /bin/sh -c LINE
    found = [position for position, word in enumerate(command) if _PLACEHOLDER.search(word)]
    return found or list(range(len(command), len(command) + width))


def _maker(command: Sequence[str], width: int, quote: Callable[[str], str]) -> Callable[[int, Row], list[str]]:
    """Return the function that makes the words of a command with so many inputs."""
    has_any = any(map(_PLACEHOLDER.search, command))
    for word in command:
        for position, _ in _PLACEHOLDER.findall(word):
            if position and not 1 <= int(position) <= width:
                raise UsageError(f'{word!r} has {{{position}}}, but there are {width} sources of inputs')

    def words(number: int, row: Row) -> list[str]:
        def replaced(match: re.Match[str]) -> str:
            if match[0] == '{#}':
                return str(number)
            change = _CHANGES[match[2] or '']
            values = [row[int(match[1]) - 1]] if match[1] else row
            return ' '.join(quote(change(value)) for value in values)

        found = [_PLACEHOLDER.sub(replaced, word) for word in command]
        if has_any or not row:
            return found
        if quote is str:
            return [*found, *row]
        return [' '.join([*found, *map(quote, row)])]   # of a shell
    return words
