"""Checks a trace against all partial orders of the catalogue.

An order holds for each instance of its scope. If the instance is an entity that is DONE, or a process that has closed
its profile, all of its events must be present, except for those that the detail leaves out and those that nothing
records (`Event.unrecorded`); otherwise the events that are present must be in order. A task that was scheduled, or that
has run, has events of that (`_STEPS`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rp_profiling import catalogue
from rp_profiling.catalogue.model import names_in
from rp_profiling.check.findings import LIMIT, Findings
from rp_profiling.check.states import Known
from rp_profiling.read import match
from rp_profiling.read.trace import NEVER, Trace

Groups = tuple[NDArray[np.uint32], NDArray[np.int64]]
Modes = NDArray[np.uint8]

# names of components in traces, without their numbers; tasks' scripts have no name
NAMES: dict[str, tuple[str, ...]] = {
    'Session': ('rp.session', 'session'),
    'Pilot': ('rp.session', 'session'),
    'PilotManager': ('pmgr',),
    'PMGRLaunchingComponent': ('pmgr_launching',),
    'TaskManager': ('tmgr',),
    'TMGRStagingInputComponent': ('tmgr_staging_input',),
    'TMGRStagingOutputComponent': ('tmgr_staging_output',),
    'bootstrap_0': ('bootstrap_0', 'bootstrap_1'),
    'agent_0': ('agent_0', 'agent', 'agent_executing'),   # the executor records the DVMs
    'AgentStagingInputComponent': ('agent_staging_input',),
    'AgentSchedulingComponent': ('agent_scheduling',),
    'AgentExecutingComponent': ('agent_executing', '', catalogue.RAPTOR_WORKER),
    'AgentStagingOutputComponent': ('agent_staging_output',),
    'UpdateWorker': ('update',),
}
_WITH_UIDS = ('rp.session', 'session', catalogue.RAPTOR_WORKER)
"""Names that are followed by more than a number."""

# the state in which a component handles a task, the components that announce it, and an event of that component's order
_STEPS = {
    'AgentSchedulingComponent': ('AGENT_SCHEDULING', ('agent_scheduling',), 'schedule_ok'),
    'AgentExecutingComponent': ('AGENT_EXECUTING', ('agent_executing', 'agent_raptor'), 'launch_start'),
}
_OF_MESSAGES = ('file', 'state update')
_LAUNCHED = ('launch_start', 'launch_submit', 'launch_collect', 'launch_stop', 'task_mkdir', 'task_mkdir_done')
_MARKS = ('sync_abs', 'trace_detail', 'END')
ANY = '*'
MOST_SYMBOLS = 64
Table = NDArray[np.int16]


def check_orders(trace: Trace, known: Known, findings: Findings) -> None:
    """Record all violations of orders."""
    checker = _Checker(trace, known)
    for order in catalogue.ORDERS:
        checker.check(order, findings)


class _Checker:
    def __init__(self, trace: Trace, known: Known) -> None:
        self._trace = trace
        self._known = known
        self._columns = trace.columns
        self._events = [trace.columns.events[number] for number in range(len(trace.columns.events))]

    def check(self, order: catalogue.PartialOrder, findings: Findings) -> None:
        """Check all instances of one order."""
        automata = compile_order(order, self._left_out(order))
        symbols = automata.symbols_of(self._events, _MARKS if order.component == catalogue.ALL_COMPONENTS else ())
        self._check_steps(order, automata, symbols, findings)
        if not any(symbol >= 0 and automata.symbols[symbol] != ANY for symbol in symbols):
            return
        groups, modes, keys = self._instances(order, automata, symbols)
        matcher = match.Matcher(symbols, automata.strict, automata.relaxed, automata.strict_ends, automata.once,
                                automata.named, LIMIT)
        per_entity = order.scope not in ('component', 'profile')
        attempts = self._attempts(order) if per_entity else np.zeros(len(modes), np.int32)
        of_messages = order.scope in _OF_MESSAGES or 'dvm_start' in automata.symbols
        matcher.run(*groups, modes, attempts, self._columns.event, self._columns.source, keys,
                    self._columns.message if of_messages else None)
        self._report(order, automata, matcher, findings)

    def _check_steps(self, order: catalogue.PartialOrder, automata: Automata, symbols: NDArray[np.int16],
                     findings: Findings) -> None:
        """Record tasks that a component has handled without any event of its order."""
        state, announcing, event = _STEPS.get(order.component, ('', (), ''))
        if event not in order.names():
            return
        rows = self._trace.rows_of('advance', state)
        rows = rows[self._named(announcing)[self._columns.source[rows]]]
        tasks = self._columns.uid[rows]
        found = match.has_event(*self._trace.by_entity, self._columns.event, (symbols >= 0).astype(np.uint8))
        silent = self._known.done[tasks] & (self._known.attempts[tasks] == 0) & ~found[tasks].astype(np.bool_)
        findings.add_all(f'order of {order.component}, per task', rows[silent & ~self._excused(rows, findings)],
                         f'is DONE and was {state}, but has no event of that')

    def _excused(self, rows: NDArray[np.uint32], findings: Findings) -> NDArray[np.bool_]:
        """Return for each row whether events of its task may be lost: a rank was killed, or none has a trace."""
        place = self._trace.place_of_source[self._columns.source[rows]]
        of_raptor = self._named(('agent_raptor',))[self._columns.source[rows]]
        excused = np.zeros(len(rows), np.bool_)
        for number in np.unique(place[of_raptor]):
            ranks = np.flatnonzero(self._named((catalogue.RAPTOR_WORKER,)) & (self._trace.place_of_source == number))
            if not len(ranks):
                findings.remarks.append(f'no rank of a RAPTOR worker of {self._trace.places[number] or "the pilot"} '
                                        'has a profile: the events of its tasks are not checked')
            if not self._trace.ended[self._trace.writer_of_source[ranks]].all() or not len(ranks):
                excused |= of_raptor & (place == number)
        return excused

    def _left_out(self, order: catalogue.PartialOrder) -> frozenset[str]:
        """Return the events of an order that may be missing: nothing records them, or less detail leaves them out."""
        reduced = self._trace.reduced[self._trace.writer_of_source]
        if order.component in NAMES:
            reduced = reduced & self._named(NAMES[order.component])
        unrecorded = frozenset(each.name for each in catalogue.events_of(order.component) if each.unrecorded)
        return unrecorded | catalogue.LEFT_OUT if reduced.any() else unrecorded

    def _report(self, order: catalogue.PartialOrder, automata: Automata, matcher: match.Matcher,
                findings: Findings) -> None:
        rule = f'order of {order.component}, per {order.scope}'
        for kind, row, possible in matcher.violations:
            event = self._events[self._columns.event[row]]
            wanted = ' or '.join(automata.symbols[symbol] for symbol in possible) or 'nothing more'
            if kind == match.UNEXPECTED:
                sentence = f'{event} comes where {wanted} is expected'
            else:
                sentence = f'nothing comes after {event}, where {wanted} is expected'
            findings.add(rule, row, sentence)
        findings.more(rule, matcher.count - len(matcher.violations))

    # instances: groups of rows, the mode of each group, and keys that tell instances in a group apart

    def _instances(self, order: catalogue.PartialOrder, automata: Automata, symbols: NDArray[np.int16],
                   ) -> tuple[Groups, Modes, NDArray[np.int32]]:
        if order.scope == 'component':
            return self._of_sources(automata, symbols)
        if order.scope == 'profile':
            return self._of_writers(automata, symbols)
        keys = self._trace.place_of_source
        if order.component == catalogue.ALL_COMPONENTS:
            keys = (self._sources_by_name * len(self._trace.places) + keys).astype(np.int32)
        elif order.component in ('Session', 'bootstrap_0'):
            keys = self._trace.writer_of_source
        chosen = np.ones(len(keys), np.bool_)
        if order.component != catalogue.ALL_COMPONENTS:
            chosen = self._named(NAMES.get(order.component, (order.component,)))
        return self._trace.by_entity, self._mode(order), np.where(chosen, keys, -1).astype(np.int32)

    def _attempts(self, order: catalogue.PartialOrder) -> NDArray[np.int32]:
        """Return how often each entity may have restarted the sequence of an order."""
        executing = order.component == 'AgentExecutingComponent'
        return self._known.attempts + self._given_up if executing else self._known.attempts

    @cached_property
    def _given_up(self) -> NDArray[np.int32]:
        """For each entity, the number of launches that were given up; each may be followed by another."""
        begun, ended = (np.bincount(self._columns.uid[self._trace.rows_of(f'task_run_cancel_{what}')],
                                    minlength=len(self._known.kinds)) for what in ('start', 'stop'))
        return np.asarray(np.maximum(begun - ended, 0), np.int32)

    @cached_property
    def _names(self) -> list[str]:
        return [source[2] for source in self._columns.sources]

    @cached_property
    def _sources_by_name(self) -> NDArray[np.int32]:
        numbers = {name: number for number, name in enumerate(dict.fromkeys(self._names))}
        return np.array([numbers[name] for name in self._names], np.int32)

    def _named(self, names: tuple[str, ...]) -> NDArray[np.bool_]:
        """Return for each source whether its component has one of these names, with or without a number."""
        def fits(name: str) -> bool:
            base, _, last = name.rpartition('.')
            return name in names or (last.isdigit() and base in names) or any(
                each in _WITH_UIDS and name.startswith(f'{each}.') for each in names)
        known = {name: fits(name) for name in set(self._names)}
        return np.array([known[name] for name in self._names], np.bool_)

    def _mode(self, order: catalogue.PartialOrder) -> Modes:
        """Return for each entity how strictly it is matched with an order."""
        known = self._known
        relaxed, strict, skip = (np.uint8(each) for each in (match.RELAXED, match.STRICT, match.SKIP))
        if order.component == 'bootstrap_0':
            return np.asarray(np.where(self._trace.last('bootstrap_0_stop') != NEVER, strict, relaxed), np.uint8)
        if order.scope == 'pilot':
            found = np.where(self._trace.entered('PMGR_ACTIVE') != NEVER, strict, relaxed)
        elif order.scope == 'session':
            found = np.where(self._closed, strict, relaxed)
        elif order.scope == 'instance':
            found = np.where(known.kinds == 2, relaxed, skip)
        elif order.scope == 'entity':
            found = np.where(known.kinds == 1, strict, skip)
        else:   # events of an unsuccessful attempt may be missing
            found = np.where(known.done & (self._attempts(order) == 0), strict, relaxed)
        if order.component == 'AgentExecutingComponent' and 'task_start' in order.names():
            launched = self._launched
            found = np.where(launched if order.scope == 'task' else ~launched, found, skip)
        return np.asarray(found, np.uint8)

    @property
    def _closed(self) -> NDArray[np.bool_]:
        """For each entity, whether it was closed as often as it was opened: not so a session taken over from others."""
        count = [np.bincount(self._columns.uid[self._trace.rows_of(event)], minlength=len(self._known.kinds))
                 for event in ('session_start', 'session_stop')]
        return np.asarray(count[0] == count[1])

    @cached_property
    def _launched(self) -> NDArray[np.bool_]:
        """For each entity, whether it was launched as an executable, and not called in a RAPTOR worker."""
        wanted = np.array([name in _LAUNCHED for name in self._events], np.uint8)
        rows, starts = self._trace.by_entity
        return match.has_event(rows, starts, self._columns.event, wanted).astype(np.bool_)

    def _of_sources(self, automata: Automata, symbols: NDArray[np.int16]) -> tuple[Groups, Modes, NDArray[np.int32]]:
        groups = match.group(self._columns.source, len(self._columns.sources), None)
        ended = self._trace.ended[self._trace.writer_of_source]
        return groups, self._where_named(groups, automata, symbols, ended), self._zeros

    def _of_writers(self, automata: Automata, symbols: NDArray[np.int16]) -> tuple[Groups, Modes, NDArray[np.int32]]:
        writers = self._trace.writer_of_source.astype(np.uint32)[self._columns.source]
        groups = match.group(writers, len(self._trace.writers), None)
        return groups, self._where_named(groups, automata, symbols, self._trace.ended), self._zeros

    def _where_named(self, groups: Groups, automata: Automata, symbols: NDArray[np.int16],
                     ended: NDArray[np.bool_]) -> Modes:
        """Return the modes of groups; groups without an event that the order names are skipped."""
        named = np.array([symbol >= 0 and automata.symbols[symbol] != ANY for symbol in symbols], np.uint8)
        found = match.has_event(*groups, self._columns.event, named).astype(np.bool_)
        return np.where(found, np.where(ended, match.STRICT, match.RELAXED), match.SKIP).astype(np.uint8)

    @property
    def _zeros(self) -> NDArray[np.int32]:
        return np.zeros(len(self._columns.sources), np.int32)


assert {order.component for order in catalogue.ORDERS} <= {
    *NAMES, catalogue.ALL_COMPONENTS, catalogue.ALL_PROFILES}


@dataclass(frozen=True)
class Automata:
    """Both automata of one order; `strict_ends` has for each strict state whether a sequence may end there."""

    order: catalogue.PartialOrder
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


def compile_order(order: catalogue.PartialOrder, left_out: Container[str] = ()) -> Automata:
    """Return the automata of an order; events that are `left_out` may be missing."""
    symbols = tuple(dict.fromkeys(names_in(order.pattern)))
    if len(symbols) > MOST_SYMBOLS:
        raise ValueError(f'the order of {order.component} names {len(symbols)} events, at most {MOST_SYMBOLS} can be '
                         'checked')
    strict, ends = _determined(_relaxed(order.pattern, left_out), symbols)
    relaxed, _ = _determined(_relaxed(order.pattern, symbols), symbols)
    return Automata(order, symbols, strict, ends, relaxed)


def _relaxed(step: catalogue.Step, optional: Container[str]) -> catalogue.Step:
    """Return the pattern with these events optional."""
    if isinstance(step, str):
        return catalogue.Opt(step) if step in optional else step
    if isinstance(step, catalogue.Star | catalogue.Opt):
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

    def add(self, step: catalogue.Step, start: int) -> int:
        """Add the paths of a step from a node, and return the node where they end."""
        if isinstance(step, catalogue.Seq):
            for each in step.steps:
                start = self.add(each, start)
            return start
        end = self.node()
        if isinstance(step, str):
            self.edges[start].append((self.numbers[step], end))
        elif isinstance(step, catalogue.Alt):
            for each in step.steps:
                self.free[self.add(each, start)].add(end)
        elif isinstance(step, catalogue.Opt):
            self.free[self.add(step.step, start)].add(end)
            self.free[start].add(end)
        else:
            self._repeat(step, start, end)
        return end

    def _repeat(self, step: catalogue.Star, start: int, end: int) -> None:
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


def _determined(pattern: catalogue.Step, symbols: Sequence[str]) -> tuple[Table, NDArray[np.uint8]]:
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
