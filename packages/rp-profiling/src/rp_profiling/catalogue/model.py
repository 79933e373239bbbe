"""The classes of the catalogue's tables.

An `Event` describes an event of a component, a `State` the component and file that record the entry into a state, and a
`PartialOrder` the order of events. The pattern of an order is built with `seq`, `alt`, `Star` and `opt` from names of
events; a name that ends in `*` stands for a family of events, and the name `*` for any event.

Meaning of a pattern:

- It holds for each instance of its `scope`: each component, each task, each staged file, and so on.
- The rows of that instance whose event the pattern names, in order of time, are a sequence that the pattern accepts. An
  instance without such rows is in order.
- For an entity that failed or was cancelled, events may be missing anywhere, but the others keep the order.
- `note` has other facts for readers, above all where rows of several processes interleave.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from rp_profiling.levels import DEFAULT, FULL, STATES

# sources of events
MODEL = 'event model'  # the event model in the documentation of RADICAL-Pilot
IN_USE = 'in use'  # recorded by RADICAL-Pilot 1.103, but missing in its event model
CLONES = 'advanced profiling'  # of the multiplication of tasks for load tests
OWN = 'RADICAL-Pilot 2'  # of new parts
ORIGINS = (MODEL, IN_USE, CLONES, OWN)

# DEFAULT leaves out the single steps between components of one process, which happen when `advance` is recorded, and
# STATES also events of each task, file or message that neither states, nor utilisation, nor the account of resources
# need
DETAILS = (FULL, DEFAULT, STATES)

ALL_COMPONENTS = 'All Components'
ALL_PROFILES = 'All Profiles'

CONDITIONS = {
    'API': 'recorded only if the application makes the call that causes it',
    'CFG': 'depends on the configuration',
    'CFG-R': 'depends on the bootstrapper settings of the platform definition',
    'CFG-DVM': 'recorded only by launch methods that run a DVM',
    'Task': 'depends on the task description',
    'Task-DS': 'needs staging directives in the task description',
    'Task-PRE': 'needs commands to run before the executable in the task description',
    'Task-POST': 'needs commands to run after the executable in the task description',
    'PILOT': 'depends on the pilot',
    'PILOT-DS': 'needs staging directives on the pilot',
    'APP': 'recorded only by applications that write profile events themselves',
    'RUNTIME': 'depends on what is decided during the run, and on the platform',
    'INTERNAL': 'depends on the state that the recorder is in',
}


_PARTS = {'start': 'begins', 'skip': 'is left to another component', 'fail': 'failed', 'stop': 'is done'}


class Fields(NamedTuple):
    """The content of an event's fields; an empty text means that the field is not set."""

    uid: str = ''
    state: str = ''
    msg: str = ''


@dataclass(frozen=True, slots=True)
class Event:
    """One event as one component records it.

    `profiles` are patterns of file names (`fnmatch`), `condition` is a key of `CONDITIONS` or empty, `optional` is true
    if ordinary runs may lack the event, `origin` is one of `ORIGINS`, `detail` the lowest of `DETAILS`
    (`rp_profiling.write.detail`) that has the event, `unrecorded` the reason why no part of this system records it;
    traces of RADICAL-Pilot 1 may have it.
    """

    name: str
    component: str
    meaning: str
    fields: Fields
    condition: str = ''
    profiles: tuple[str, ...] = ()
    optional: bool = False
    origin: str = MODEL
    detail: str = STATES
    unrecorded: str = ''

    @property
    def is_family(self) -> bool:
        """True if the name stands for all events with this prefix."""
        return self.name.endswith('*')

    def covers(self, name: str) -> bool:
        """Return whether the event, or its family, has this name."""
        return name == self.name or (self.is_family and fnmatchcase(name, self.name))


@dataclass(frozen=True, slots=True)
class State:
    """One state of the two linear models, with the component that acts on an entity in that state.

    `component` is empty if the module itself acts. `sandboxes` tells if the client or the agent records the entry into
    the state (an event `advance`), and `profiles` in which files.
    """

    entity: str
    name: str
    module: str
    component: str
    action: str
    sandboxes: tuple[str, ...]
    profiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seq:
    """All `steps`, one after the other."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of `steps`."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Star:
    """`step` any number of times, including none."""

    step: Step


@dataclass(frozen=True, slots=True)
class Opt:
    """`step` once or never."""

    step: Step


Step = str | Seq | Alt | Star | Opt


def seq(*steps: Step) -> Seq:
    """Return all steps, one after the other."""
    return Seq(steps)


def alt(*steps: Step) -> Alt:
    """Return one of the steps."""
    return Alt(steps)


def opt(*steps: Step) -> Opt:
    """Return an optional step; several steps are either all present or all missing."""
    return Opt(steps[0] if len(steps) == 1 else Seq(steps))


@dataclass(frozen=True, slots=True)
class PartialOrder:
    """The order of a component's events within one `scope`; the module describes the meaning of `pattern`.

    `each_rank` names the events that each rank of a task records: the check uses the first of each name.
    """

    component: str
    scope: str
    pattern: Step
    note: str = ''
    each_rank: tuple[str, ...] = ()

    def names(self) -> frozenset[str]:
        """Return the names of events in the pattern, families included, without the name `*` of any event."""
        return frozenset(names_in(self.pattern)) - {'*'}


def names_in(step: Step) -> list[str]:
    """Return all names in a pattern, in its order."""
    if isinstance(step, str):
        return [step]
    if isinstance(step, Star | Opt):
        return names_in(step.step)
    return [name for each in step.steps for name in names_in(each)]


@dataclass(frozen=True, slots=True)
class Recorder:
    """Makes the events of one component; called with the particulars of an event.

    `uid`, `profiles` and `detail` are defaults for all its events.
    """

    component: str
    uid: str = ''
    profiles: tuple[str, ...] = ()
    detail: str = STATES

    def __call__(self, name: str, meaning: str, *, uid: str | None = None, state: str = '', msg: str = '',
                 condition: str = '', profiles: tuple[str, ...] | None = None, optional: bool = False,
                 origin: str = MODEL, detail: str = '', unrecorded: str = '') -> Event:
        """Return an event of the component."""
        fields = Fields(self.uid if uid is None else uid, state, msg)
        return Event(name, self.component, meaning, fields, condition,
                     profiles=self.profiles if profiles is None else profiles,
                     optional=optional or bool(condition or unrecorded),
                     origin=origin, detail=detail or self.detail, unrecorded=unrecorded)

    def directives(self, name: str, what: str, *parts: str, condition: str, origin: str = MODEL) -> tuple[Event, ...]:
        """Return the events `<name>_<part>` of staging directives, for parts of `_PARTS`."""
        return tuple(self(f'{name}_{part}', f'{what} {_PARTS[part]}', msg='uid of the staging directive',
                          condition=condition, origin=origin) for part in parts)
