"""The detail of traces, as users choose it: the events that are recorded, and the compression of profiles.

A choice consists of words, separated by commas or spaces: `full` (all events), `default`, `states` (the events that the
catalogue has at these levels) or `off`, and `gzip`. The environment has it (`chosen`), and agents get it as text in
their configuration. Any other word switches profiles on, as in RADICAL-Pilot 1.

A name that is left out with `states` is not recorded by any tracer. The events of `full` share names with events of
`default`: components ask `Tracer.full_detail` before they record them.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from rp_profiling.levels import DEFAULT, FULL, OFF, STATES

if TYPE_CHECKING:
    from collections.abc import Mapping


_GZIP = 'gzip'
_NO = frozenset(('', '0', 'false', 'no', OFF))
_VARIABLES = ('RADICAL_PILOT_PROFILE', 'RADICAL_PROFILE', 'RADICAL_DEFAULT_PROFILE')
_SWITCH = r'RADICAL_PILOT_([A-Z0-9_]+)_PROFILE'


class Detail(NamedTuple):
    """The events that are recorded (`full`, `default`, `states` or `off`), and whether profiles are compressed."""

    events: str = DEFAULT
    gzip: bool = False

    @classmethod
    def parse(cls, choice: str | bool) -> Detail:
        """Return the detail of a choice; the empty text is `off`."""
        words = re.split(r'[\s,]+', str(choice).lower().strip(' ,'))
        if not _NO.isdisjoint(words):
            return cls(OFF)
        return cls(next((level for level in (STATES, FULL) if level in words), DEFAULT), _GZIP in words)

    def __str__(self) -> str:
        """Return a text that `parse` reads; empty if profiles are off."""
        return '' if not self.on else f'{self.events},{_GZIP}' if self.gzip else self.events

    @property
    def on(self) -> bool:
        """True if profiles are written."""
        return self.events != OFF

    @property
    def left_out(self) -> frozenset[str]:
        """The names of the events that are not recorded; all others are, including those of applications."""
        if self.events != STATES:
            return frozenset()
        from rp_profiling.catalogue import LEFT_OUT  # most processes leave none out

        return LEFT_OUT

    def records(self, event: str) -> bool:
        """Return whether events of this name are recorded."""
        return self.on and event not in self.left_out

    def of_component(self, name: str, switches: Mapping[str, str | bool]) -> Detail:
        """Return the detail of one component if profiles are on; compressed if its own or the general choice is."""
        own = switches.get(component_kind(name))
        if own is None or not self.on:
            return self
        detail = Detail.parse(own)
        return detail._replace(gzip=detail.gzip or self.gzip)


USUAL = Detail()


def chosen(environ: Mapping[str, str] = os.environ, name: str = '') -> Detail:
    """Return the detail that the environment sets, for all profiles or that of one component.

    The first of RADICAL_PILOT_PROFILE, RADICAL_PROFILE and RADICAL_DEFAULT_PROFILE that is set and not empty decides:
    `0`, `false`, `no` and `off` (in any case) switch profiles off. They are on by default.

    Args:
        environ: The environment.
        name: The name of a component.
    """
    values = (environ.get(variable, '').strip() for variable in _VARIABLES)
    return Detail.parse(next(filter(None, values), DEFAULT)).of_component(name, switches(environ))


def switches(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the values of the components that have a variable of their own.

    RADICAL_PILOT_AGENT_EXECUTING_PROFILE is for all components `agent_executing.<number>`.
    """
    found = {match[1].lower(): value.strip() for variable, value in environ.items()
             if (match := re.fullmatch(_SWITCH, variable))}
    return {component: value for component, value in found.items() if value}


def component_kind(name: str) -> str:
    """Return the name of a component without its number."""
    return name.partition('.')[0]
