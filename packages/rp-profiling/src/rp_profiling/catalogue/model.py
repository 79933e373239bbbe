"""The forms in which the catalogue states what may stand in a profile.

An `Event` says what a component records, a `State` which component and file record the entry into a state,
and a `PartialOrder` in which order events come. An order's pattern is built with `seq`, `alt`, `star` and
`opt` from event names; a name may end in `*` and then stands for a family of events, and the name `*` stands
for any event.

How a pattern is to be read:

- It holds for each instance of its `scope`: for each component, each task, each file that is staged, and so
  on.
- Of the rows of that instance, in order of time, only those count whose event the pattern names. They make a
  word that the pattern accepts. An instance with no such row is in order.
- Where an entity failed or was cancelled, events may be missing anywhere, but those that are there keep the
  order.
- `note` says what else a reader has to know, above all where rows of several processes interleave.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from rp_profiling.levels import FULL, STATES

# where the knowledge of an event comes from
MODEL = 'event model'  # the event model in the documentation of RADICAL-Pilot
IN_USE = 'in use'  # recorded by RADICAL-Pilot 1.103, but missing in its event model
CLONES = 'advanced profiling'  # goes with the blow-up of single components
OWN = 'RADICAL-Pilot 2'  # of parts that were not there before
ORIGINS = (MODEL, IN_USE, CLONES, OWN)

# with the detail STATES, events are left out that there are for each task, file or message, if neither the states of
# pilots and tasks, nor utilisation, nor the account of resources depends on them
DETAILS = (FULL, STATES)

ALL_COMPONENTS = 'All Components'
ALL_PROFILES = 'All Profiles'

CONDITIONS = {
    'API': 'recorded only if the application makes the call that causes it',
    'CFG': 'depends on the configuration',
    'CFG-R': 'depends on how the platform definition sets the bootstrapper up',
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


class Fields(NamedTuple):
    """What an event's fields hold; an empty text says that the field is not set."""

    uid: str = ''
    state: str = ''
    msg: str = ''


@dataclass(frozen=True, slots=True)
class Event:
    """One event as one component records it.

    `profiles` are patterns of file names (`fnmatch`) in which the event is found, `condition` is a key of
    `CONDITIONS` or empty, `optional` tells that an ordinary run may lack the event, `origin` is one of
    `ORIGINS`, `detail` the least one of `DETAILS` (`rp_profiling.write.detail`) that has the event.
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

    @property
    def is_family(self) -> bool:
        """Whether the name stands for all events with this beginning."""
        return self.name.endswith('*')

    def covers(self, name: str) -> bool:
        """Whether an event of this name is meant."""
        return name == self.name or (self.is_family and fnmatchcase(name, self.name))


@dataclass(frozen=True, slots=True)
class State:
    """One state of the two linear models, with who acts on an entity that is in it.

    `component` is empty where the module itself acts. `sandboxes` tells whether the entry into the state, an
    event `advance`, is recorded on the side of the client or of the agent, and `profiles` in which files.
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
    """`step` any number of times, also not at all."""

    step: Step


@dataclass(frozen=True, slots=True)
class Opt:
    """`step` once or not at all."""

    step: Step


Step = str | Seq | Alt | Star | Opt


def seq(*steps: Step) -> Seq:
    return Seq(steps)


def alt(*steps: Step) -> Alt:
    return Alt(steps)


def star(step: Step) -> Star:
    return Star(step)


def opt(*steps: Step) -> Opt:
    """An optional step; several steps are all there or all missing."""
    return Opt(steps[0] if len(steps) == 1 else Seq(steps))


@dataclass(frozen=True, slots=True)
class PartialOrder:
    """The order of a component's events within one `scope`; how to read `pattern` is said at the top.

    `each_rank` names the events that each rank of a task records: the first of each name counts.
    """

    component: str
    scope: str
    pattern: Step
    note: str = ''
    each_rank: tuple[str, ...] = ()

    def names(self) -> frozenset[str]:
        """The event names in the pattern, families included, without the name `*` of any event."""
        return frozenset(_names(self.pattern)) - {'*'}


def _names(step: Step) -> list[str]:
    if isinstance(step, str):
        return [step]
    if isinstance(step, Star | Opt):
        return _names(step.step)
    return [name for each in step.steps for name in _names(each)]


@dataclass(frozen=True, slots=True)
class Recorder:
    """Makes the events of one component; called with what is particular to an event.

    `uid`, `profiles` and `detail` hold for all its events that do not say otherwise.
    """

    component: str
    uid: str = ''
    profiles: tuple[str, ...] = ()
    detail: str = STATES

    def __call__(
        self,
        name: str,
        meaning: str,
        *,
        uid: str | None = None,
        state: str = '',
        msg: str = '',
        condition: str = '',
        profiles: tuple[str, ...] | None = None,
        optional: bool = False,
        origin: str = MODEL,
        detail: str = '',
    ) -> Event:
        return Event(
            name=name,
            component=self.component,
            meaning=meaning,
            fields=Fields(self.uid if uid is None else uid, state, msg),
            condition=condition,
            profiles=self.profiles if profiles is None else profiles,
            optional=optional or bool(condition),
            origin=origin,
            detail=detail or self.detail,
        )
