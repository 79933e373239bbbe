"""Every event of the system as data: what it means, who records it where, and in which order events come.

`EVENTS`, `STATES` and `ORDERS` are the tables, `model` describes their rows. The documentation, the checker
that holds traces against the orders, and the analysis are all made from these tables.
"""

from __future__ import annotations

from rp_profiling.catalogue import agent, bootstrap, client, common, coordination
from rp_profiling.catalogue.model import (
    ALL_COMPONENTS,
    ALL_PROFILES,
    CONDITIONS,
    DETAILS,
    ORIGINS,
    Alt,
    Event,
    Fields,
    Opt,
    PartialOrder,
    Seq,
    Star,
    State,
    Step,
)
from rp_profiling.catalogue.states import PILOT_STATES, STATES, TASK_STATES
from rp_profiling.levels import FULL

__all__ = [
    'ALL_COMPONENTS',
    'ALL_PROFILES',
    'COMPONENTS',
    'CONDITIONS',
    'DETAILS',
    'EVENTS',
    'LEFT_OUT',
    'ORDERS',
    'ORIGINS',
    'PILOT_STATES',
    'STATES',
    'TASK_STATES',
    'Alt',
    'Event',
    'Fields',
    'Opt',
    'PartialOrder',
    'Seq',
    'Star',
    'State',
    'Step',
    'event',
    'events_of',
    'orders_of',
]

EVENTS: tuple[Event, ...] = (
    *common.EVENTS, *client.EVENTS, *coordination.EVENTS, *bootstrap.EVENTS, *agent.EVENTS)
ORDERS: tuple[PartialOrder, ...] = (*common.ORDERS, *client.ORDERS, *bootstrap.ORDERS, *agent.ORDERS)

LEFT_OUT = frozenset(each.name for each in EVENTS if each.detail == FULL)
"""The names of the events that are recorded only with the detail `full`."""

# The task manager's scheduler records no events but those of all components.
COMPONENTS: tuple[str, ...] = (*dict.fromkeys(each.component for each in EVENTS), 'TMGRSchedulingComponent')


def events_of(component: str) -> tuple[Event, ...]:
    """The component's own events in their usual order; ValueError if there is no such component.

    An event with two forms (of a bulk, and of each member of it) is there twice. What all components record
    is found under `ALL_COMPONENTS`, what all profiles hold under `ALL_PROFILES`.
    """
    _require(component)
    return tuple(each for each in EVENTS if each.component == component)


def orders_of(component: str) -> tuple[PartialOrder, ...]:
    """The orders of the component's own events; ValueError if there is no such component."""
    _require(component)
    return tuple(each for each in ORDERS if each.component == component)


def event(component: str, name: str) -> Event:
    """The event `name` as `component` records it: its own, or that of all components or all profiles.

    Of an event with two forms the first one, that of the bulk. A name that only a family (`app_*`) covers
    gives that family. ValueError if there is no such component, KeyError if it records no such event.
    """
    own = events_of(component)
    known = (*own, *events_of(ALL_COMPONENTS), *events_of(ALL_PROFILES))
    exact = (each for each in known if each.name == name)
    found = next(exact, None) or next((each for each in own if each.covers(name)), None)
    if found is None:
        raise KeyError(f'{component} records no event {name!r}')
    return found


def _require(component: str) -> None:
    if component not in COMPONENTS:
        raise ValueError(f'no component {component!r} in the catalogue, there are: {", ".join(COMPONENTS)}')
