"""Automata of partial orders: the patterns of the catalogue as tables that rows are matched with.

Each order becomes two automata over the event names in its pattern, its *symbols*. The strict one accepts the sequences
of the pattern. The relaxed one accepts the same sequences with any events missing: that is for entities that failed,
were cancelled or have not ended. In a table, `table[state][symbol]` is the next state, or -1; state 0 is the first.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from rp_profiling.catalogue import Alt, Opt, PartialOrder, Seq, Star, Step
from rp_profiling.catalogue.model import names_in

ANY = '*'
MOST_SYMBOLS = 64

Table = NDArray[np.int16]


@dataclass(frozen=True)
class Automata:
    """Both automata of one order; `strict_ends` has for each strict state whether a sequence may end there."""

    order: PartialOrder
    symbols: tuple[str, ...]
    strict: Table
    strict_ends: NDArray[np.uint8]
    relaxed: Table

    @property
    def once(self) -> NDArray[np.uint8]:
        """For each symbol, whether several such events in a row count as one, as each rank records it."""
        return np.array([symbol in self.order.each_rank for symbol in self.symbols], np.uint8)

    @property
    def named(self) -> NDArray[np.uint8]:
        """For each symbol, whether the pattern names the event."""
        return np.array([symbol != ANY for symbol in self.symbols], np.uint8)

    def symbols_of(self, events: Iterable[str], ignored: Sequence[str] = ()) -> NDArray[np.int16]:
        """Return for each event name the number of its symbol, or -1 if the order does not cover the event."""
        return np.array([-1 if name in ignored else self._symbol(name) for name in events], np.int16)

    def _symbol(self, name: str) -> int:
        if name in self.symbols:
            return self.symbols.index(name)
        found = (number for number, symbol in enumerate(self.symbols)
                 if symbol.endswith('*') and symbol != ANY and fnmatchcase(name, symbol))
        return next(found, self.symbols.index(ANY) if ANY in self.symbols else -1)


def compile_order(order: PartialOrder, left_out: Container[str] = ()) -> Automata:
    """Return the automata of an order; events that are `left_out` may be missing."""
    symbols = tuple(dict.fromkeys(names_in(order.pattern)))
    if len(symbols) > MOST_SYMBOLS:
        raise ValueError(f'the order of {order.component} names {len(symbols)} events, at most {MOST_SYMBOLS} can be '
                         'checked')
    strict, ends = _determined(_relaxed(order.pattern, left_out), symbols)
    relaxed, _ = _determined(_relaxed(order.pattern, symbols), symbols)
    return Automata(order, symbols, strict, ends, relaxed)


def _relaxed(step: Step, optional: Container[str]) -> Step:
    """Return the pattern with these events optional."""
    if isinstance(step, str):
        return Opt(step) if step in optional else step
    if isinstance(step, Star | Opt):
        return type(step)(_relaxed(step.step, optional))
    return type(step)(tuple(_relaxed(each, optional) for each in step.steps))


class _Graph:
    """A non-deterministic automaton: edges with a symbol, and edges without one."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.numbers = {symbol: number for number, symbol in enumerate(symbols)}
        self.edges: list[list[tuple[int, int]]] = []
        self.free: list[set[int]] = []

    def node(self) -> int:
        self.edges.append([])
        self.free.append(set())
        return len(self.edges) - 1

    def add(self, step: Step, start: int) -> int:
        """Add the paths of a step from a node, and return the node where they end."""
        if isinstance(step, Seq):
            for each in step.steps:
                start = self.add(each, start)
            return start
        end = self.node()
        if isinstance(step, str):
            self.edges[start].append((self.numbers[step], end))
        elif isinstance(step, Alt):
            for each in step.steps:
                self.free[self.add(each, start)].add(end)
        elif isinstance(step, Opt):
            self.free[self.add(step.step, start)].add(end)
            self.free[start].add(end)
        else:
            self._repeat(step, start, end)
        return end

    def _repeat(self, step: Star, start: int, end: int) -> None:
        again = self.node()
        self.free[start].add(again)
        self.free[self.add(step.step, again)].add(again)
        self.free[again].add(end)

    def closure(self, nodes: Iterable[int]) -> frozenset[int]:
        """Return the nodes, and those reached from them without a symbol."""
        found: set[int] = set()
        left = list(nodes)
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left.extend(self.free[node])
        return frozenset(found)


def _determined(pattern: Step, symbols: Sequence[str]) -> tuple[Table, NDArray[np.uint8]]:
    """Return the table of the deterministic automaton, and its accepting states (subset construction)."""
    graph = _Graph(symbols)
    first = graph.node()
    last = graph.add(pattern, first)
    states = [graph.closure([first])]
    table: list[list[int]] = []
    while len(table) < len(states):
        row = []
        for symbol in range(len(symbols)):
            reached = graph.closure(to for node in states[len(table)] for label, to in graph.edges[node]
                                    if label == symbol)
            if reached and reached not in states:
                states.append(reached)
            row.append(states.index(reached) if reached else -1)
        table.append(row)
    return np.array(table, np.int16), np.array([last in state for state in states], np.uint8)
