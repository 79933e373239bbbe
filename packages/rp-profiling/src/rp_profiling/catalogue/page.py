"""Writes the documentation page of events from the catalogue: `python -m rp_profiling.catalogue.page FILE`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rp_profiling.catalogue import (
    COMPONENTS,
    CONDITIONS,
    EVENTS,
    STATES,
    Alt,
    Event,
    Opt,
    PartialOrder,
    Seq,
    State,
    Step,
    events_of,
    orders_of,
)
from rp_profiling.catalogue.model import OWN
from rp_profiling.levels import STATES as LEAST

_HEAD = """# Events

This page lists every event in the traces of a session, with the order of events; [tracing](../understand/tracing.md)
explains how to look at them. It is made by `python -m rp_profiling.catalogue.page docs/reference/events.md`.

Each row of a profile has `time,event,comp,thread,uid,state,msg`. The tables say what *uid*, *state* and *msg* contain
where they are set, and which *file* has the event. A value above a table holds for all its rows. *Notes* are:

- in brackets, the [condition](#conditions) for an event; events without one are in every ordinary run;
- *default*: the event is left out if [less detail](../understand/tracing.md#detail-and-compression) is asked for;
- *full*: the event is recorded only if more detail is asked for;
- *RADICAL-Pilot 2*: the event is new here;
- *not recorded*: the event cannot happen here, for the given reason; traces of RADICAL-Pilot 1 may have it.
"""

_MOST_FILES = 4
"""Files that a cell names; more are those of most components."""


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD, *(_component(component) for component in COMPONENTS), _states(), _conditions()]
    return '\n'.join(parts)


def _component(component: str) -> str:
    events = events_of(component)
    lines = [f'## {component}\n']
    if events:
        lines += _table(('event', 'meaning', 'uid', 'state', 'msg', 'file', 'notes'), map(_event, events))
    else:
        lines.append('Records what all components record.')
    for order in orders_of(component):
        lines += ['', *_order(order)]
    return '\n'.join(lines) + '\n'


def _event(event: Event) -> tuple[str, ...]:
    notes = (
        f'[{event.condition}]' if event.condition else '[optional]' if event.optional else '',
        '' if event.detail == LEAST else event.detail,
        event.origin if event.origin == OWN else '',
        event.unrecorded and f'not recorded: {event.unrecorded}',
    )
    return (f'`{event.name}`', event.meaning, *event.fields, _files(event.profiles), ', '.join(filter(None, notes)))


def _files(profiles: Iterable[str]) -> str:
    patterns = [f'`{pattern}`' for pattern in profiles]
    return ', '.join(patterns) if len(patterns) <= _MOST_FILES else 'of components'


def _order(order: PartialOrder) -> Iterator[str]:
    yield f'Per {order.scope}: `{_pattern(order.pattern)}`'
    if order.note:
        yield f'({order.note})'


def _pattern(step: Step) -> str:
    """Return a pattern as text: `,` for a sequence, `|` for alternatives, `*` for repetition, `[]` for an option."""
    if isinstance(step, str):
        return step
    if isinstance(step, Seq):
        return ', '.join(map(_pattern, step.steps))
    if isinstance(step, Alt):
        return '(' + ' | '.join(map(_pattern, step.steps)) + ')'
    if isinstance(step, Opt):
        return f'[{_pattern(step.step)}]'
    return '*' if step.step == '*' else f'({_pattern(step.step)})*'


def _states() -> str:
    lines = ['## States\n', 'The entry into a state is an event `advance` with the entity as *uid* and the name of the '
             'state as *state*. States come in this order. `agent*` are files of the agent, the others of the client.']
    for entity in ('pilot', 'task'):
        rows = [_state(state) for state in STATES if state.entity == entity]
        lines += ['', *_table(('state', 'what happens', 'entity', 'handled by', 'file'), rows)]
    return '\n'.join(lines) + '\n'


def _state(state: State) -> tuple[str, ...]:
    return (f'`{state.name}`', state.action, state.entity, state.component or state.module, _files(state.profiles))


def _conditions() -> str:
    used = {event.condition for event in EVENTS}
    lines = [f'- [{name}]: {meaning}' for name, meaning in CONDITIONS.items() if name in used]
    return '\n'.join(['## Conditions\n', *lines, '- [optional]: not recorded in each run']) + '\n'


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A table; if all cells of a column beyond the second are equal, their value stands above the table instead."""
    columns = list(zip(heads, *rows, strict=True))
    common = {head: cells[0] for head, *cells in columns[2:] if len(set(cells)) == 1}
    if any(common.values()):
        yield ' '.join(f'*{head}*: {cell}.' for head, cell in common.items() if cell) + '\n'
    shown = [column for column in columns if column[0] not in common]
    for number, cells in enumerate(zip(*shown, strict=True)):
        yield f'| {" | ".join(cell.replace("|", "&#124;") for cell in cells)} |'
        if number == 0:
            yield '|---' * len(cells) + '|'


if __name__ == '__main__':
    Path(sys.argv[1]).write_text(page(), encoding='utf-8')
