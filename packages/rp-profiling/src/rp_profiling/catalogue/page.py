"""Writes the documentation page of events from the catalogue: `python -m rp_profiling.catalogue.page FILE`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rp_profiling.catalogue import (
    COMPONENTS,
    CONDITIONS,
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
from rp_profiling.catalogue.model import MODEL
from rp_profiling.levels import FULL

_HEAD = """# Events

This page lists every event in the traces of a session: its meaning, the component that records it, the file that has
it, and the order of events. [Tracing](../understand/tracing.md) explains how to look at traces. `rp trace SESSION
check` checks a session against this page.

The page is made from `rp_profiling.catalogue`: `python -m rp_profiling.catalogue.page docs/reference/events.md`.

Each row of a profile has `time,event,comp,thread,uid,state,msg`. The tables say what *uid*, *state* and *msg* contain
where they are set. *When* is empty for events of every ordinary run; [below](#conditions) are the other entries. Where
*detail* is *full*, the event is left out if [less detail](../understand/tracing.md#less-detail-and-compression) is
chosen. Events are those of the event model of RADICAL-Pilot, unless *from* names another source: *in use* are those
that RADICAL-Pilot 1.103 records although its model lacks them, *advanced profiling* belongs to clones of tasks, and
*RADICAL-Pilot 2* is new.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD, *(_component(component) for component in COMPONENTS), _states(), _conditions()]
    return '\n'.join(parts)


def _component(component: str) -> str:
    events = events_of(component)
    lines = [f'## {component}\n']
    if events:
        heads = ('event', 'meaning', 'uid', 'state', 'msg', 'when', 'detail', 'file', 'from')
        lines += _table(heads, map(_event, events))
    else:
        lines.append('Records what all components record.')
    for order in orders_of(component):
        lines += ['', *_order(order)]
    return '\n'.join(lines) + '\n'


def _event(event: Event) -> tuple[str, ...]:
    when = f'[{event.condition}]' if event.condition else '[optional]' if event.optional else ''
    files = ', '.join(f'`{pattern}`' for pattern in event.profiles)
    detail = event.detail if event.detail == FULL else ''
    origin = '' if event.origin == MODEL else event.origin
    return (f'`{event.name}`', event.meaning, *event.fields, when, detail, files, origin)


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
    rows = map(_state, STATES)
    return '\n'.join([
        '## States\n', 'The entry into a state is an event `advance` with the entity as *uid* and the name of the '
        'state as *state*. States come in this order.\n',
        *_table(('entity', 'state', 'module', 'component', 'what happens', 'recorded by', 'file'), rows)]) + '\n'


def _state(state: State) -> tuple[str, ...]:
    return (state.entity, f'`{state.name}`', state.module, state.component, state.action, ', '.join(state.sandboxes),
            ', '.join(f'`{pattern}`' for pattern in state.profiles))


def _conditions() -> str:
    rows = [(f'[{name}]', meaning) for name, meaning in CONDITIONS.items()]
    return '\n'.join(['## Conditions\n', *_table(('when', 'meaning'), [
        *rows, ('[optional]', 'not recorded in each run')])]) + '\n'


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = list(heads)
    yield f'| {" | ".join(heads)} |'
    yield '|---' * len(heads) + '|'
    for row in rows:
        yield f'| {" | ".join(cell.replace("|", "&#124;") for cell in row)} |'


if __name__ == '__main__':
    Path(sys.argv[1]).write_text(page(), encoding='utf-8')
