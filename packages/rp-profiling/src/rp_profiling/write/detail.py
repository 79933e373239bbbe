"""The detail of traces, which the user chooses: which events are recorded, and whether profiles are compressed.

A choice is made of words, with commas or spaces between them: `full` (all events, the default), `states` (the events
that the catalogue has at this level) or `off`, and `gzip`. It is read from the environment (`chosen`), and agents get
it in their configuration, as text. Any other word switches profiles on, as it does in RADICAL-Pilot 1.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from rp_profiling.levels import FULL, OFF, STATES

if TYPE_CHECKING:
    from collections.abc import Mapping


_GZIP = 'gzip'
_NO = frozenset(('', '0', 'false', 'no', OFF))
_VARIABLES = ('RADICAL_PILOT_PROFILE', 'RADICAL_PROFILE', 'RADICAL_DEFAULT_PROFILE')
_SWITCH = r'RADICAL_PILOT_([A-Z0-9_]+)_PROFILE'


class Detail(NamedTuple):
    """The events that are recorded (`full`, `states` or `off`), and whether profiles are compressed."""

    events: str = FULL
    gzip: bool = False

    @classmethod
    def parse(cls, choice: str | bool) -> Detail:
        """The detail that was chosen; the empty text is `off`."""
        words = re.split(r'[\s,]+', str(choice).lower().strip(' ,'))
        if not _NO.isdisjoint(words):
            return cls(OFF)
        return cls(STATES if STATES in words else FULL, _GZIP in words)

    def __str__(self) -> str:
        """What `parse` reads; empty if profiles are off."""
        return '' if not self.on else f'{self.events},{_GZIP}' if self.gzip else self.events

    @property
    def on(self) -> bool:
        """Whether profiles are written."""
        return self.events != OFF

    @property
    def left_out(self) -> frozenset[str]:
        """The names of the events that are not recorded; others, as those of applications, are."""
        if self.events != STATES:
            return frozenset()
        from rp_profiling.catalogue import LEFT_OUT  # most processes record everything

        return LEFT_OUT

    def records(self, event: str) -> bool:
        """Whether events of this name are recorded."""
        return self.on and event not in self.left_out

    def of_component(self, name: str, switches: Mapping[str, str | bool]) -> Detail:
        """The detail of one component, which counts if profiles are on; they are compressed if either says so."""
        own = switches.get(component_kind(name))
        if own is None or not self.on:
            return self
        detail = Detail.parse(own)
        return detail._replace(gzip=detail.gzip or self.gzip)


EVERYTHING = Detail()


def chosen(environ: Mapping[str, str] = os.environ, name: str = '') -> Detail:
    """The detail that the environment asks for, of all profiles or of that of the component of this name.

    The first variable of RADICAL_PILOT_PROFILE, RADICAL_PROFILE and RADICAL_DEFAULT_PROFILE that is set and not empty
    decides: `0`, `false`, `no` and `off` (in any case) switch profiles off. They are on by default.
    """
    values = (environ.get(variable, '').strip() for variable in _VARIABLES)
    return Detail.parse(next(filter(None, values), FULL)).of_component(name, switches(environ))


def switches(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The components that have a switch of their own, and how that is set.

    RADICAL_PILOT_AGENT_EXECUTING_PROFILE is that of all components `agent_executing.<number>`.
    """
    found = {match[1].lower(): value.strip() for variable, value in environ.items()
             if (match := re.fullmatch(_SWITCH, variable))}
    return {component: value for component, value in found.items() if value}


def component_kind(name: str) -> str:
    """The name of a component without its number."""
    return name.partition('.')[0]
