"""The event catalogue: meaning, recorder, fields and order of every event of the system, as data.

`EVENTS`, `STATES` and `ORDERS` are the tables, `model` has the classes of their rows. The documentation, the checker
and the analysis are made from these tables.
"""

from __future__ import annotations

from rp_profiling.catalogue import agent, bootstrap, client, common
from rp_profiling.catalogue.agent import RAPTOR_WORKER
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
from rp_profiling.levels import STATES as LEAST

__all__ = [
    'ALL_COMPONENTS', 'ALL_PROFILES', 'COMPONENTS', 'CONDITIONS', 'DETAILS', 'EVENTS', 'LEFT_OUT', 'ORDERS',
    'ORIGINS', 'PILOT_STATES', 'RAPTOR_WORKER', 'STATES', 'TASK_STATES', 'Alt', 'Event', 'Fields', 'Opt',
    'PartialOrder', 'Seq', 'Star', 'State', 'Step', 'event', 'events_of', 'orders_of',
]

EVENTS: tuple[Event, ...] = (
    *common.EVENTS, *client.EVENTS, *bootstrap.EVENTS, *agent.EVENTS)
ORDERS: tuple[PartialOrder, ...] = (*common.ORDERS, *client.ORDERS, *bootstrap.ORDERS, *agent.ORDERS)

LEFT_OUT = frozenset(each.name for each in EVENTS if each.detail != LEAST)
"""The names of the events that are not recorded with the detail `states`."""

# the task manager's scheduler records only events of all components
COMPONENTS: tuple[str, ...] = (*dict.fromkeys(each.component for each in EVENTS), 'TMGRSchedulingComponent')


def events_of(component: str) -> tuple[Event, ...]:
    """Return the component's own events in their usual order; ValueError for an unknown component.

    An event with two forms (of a bulk, and of each member of it) is there twice. Events of all components are under
    `ALL_COMPONENTS`, those of all profiles under `ALL_PROFILES`.
    """
    _require(component)
    return tuple(each for each in EVENTS if each.component == component)


def orders_of(component: str) -> tuple[PartialOrder, ...]:
    """Return the orders of the component's own events; ValueError for an unknown component."""
    _require(component)
    return tuple(each for each in ORDERS if each.component == component)


def event(component: str, name: str) -> Event:
    """Return the event `name` of `component`: its own, or that of all components or all profiles.

    Of an event with two forms the first one, that of the bulk; for a name that only a family (`app_*`) covers, that
    family. ValueError for an unknown component, KeyError if it does not record the event.
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
