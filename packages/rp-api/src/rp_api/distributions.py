"""Checks of the installed distributions: missing parts, and conflicts with RADICAL-Pilot 1.

The system consists of five distributions that work independently. A distribution that needs another one (a local pilot
needs the agent) checks here, and the error names the `pip install` command.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence

from rp_api.errors import PilotError

_PURPOSE = {
    'rp-api': 'descriptions, states and resources',
    'rp-client': 'sessions, pilot managers and task managers',
    'rp-agent': 'running the tasks of a pilot',
    'rp-raptor': 'RAPTOR masters and workers',
    'rp-profiling': 'writing and reading traces',
}

# metadata of a distribution named radical.pilot, in any spelling, in site-packages or in a source tree
_UPSTREAM = re.compile(r'radical[._-]pilot(-(?P<version>[^-]+)(-.*)?)?\.(dist|egg)-info', re.IGNORECASE)
_LISTINGS = ('RECORD', 'installed-files.txt', 'SOURCES.txt')


def missing(dist: str) -> str | None:
    """Return the sentence that explains how to install the distribution `dist`, or None if it is installed.

    `dist` is a distribution of this project, such as 'rp-client'; others raise KeyError.
    """
    purpose = _PURPOSE[dist]
    import importlib.util  # rarely needed

    spec = importlib.util.find_spec(dist.replace('-', '_'))
    # a left-over directory without __init__.py is found as a namespace, whose origin is None
    if spec is not None and spec.origin is not None:
        return None
    return f'{dist} is not installed, and it is needed for {purpose}: pip install {dist}'


def require(dist: str) -> None:
    """Raise a PilotError with the `pip install` command unless the distribution `dist` is installed."""
    sentence = missing(dist)
    if sentence:
        raise PilotError(sentence)


def check_upstream(path: Sequence[str] | None = None) -> None:
    """Raise a PilotError if another distribution that provides `radical/pilot` is installed.

    pip installs both without a warning, and the later one overwrites files of the earlier. A distribution named
    `radical.pilot` without such files is accepted. `path` is the search path, by default `sys.path`.
    """
    for directory in sys.path if path is None else path:
        for name, version in _upstream_metadata(directory or os.curdir):
            if _ships_pilot(os.path.join(directory, name)):
                raise PilotError(
                    f'radical.pilot {version} is installed in {directory}, and rp-api provides the module '
                    'radical.pilot as well: which of the two is imported is undefined. Remove both and install one: '
                    'pip uninstall radical.pilot rp-api, then pip install rp-api'
                )


def _upstream_metadata(directory: str) -> Iterator[tuple[str, str]]:
    """Yield the metadata directory and version of each distribution named radical.pilot in `directory`.

    Only file names are read, since importing importlib.metadata would take longer than this check.
    """
    try:
        names = os.listdir(directory)
    except OSError:  # not every entry of sys.path is a directory
        return
    for name in names:
        match = _UPSTREAM.fullmatch(name)
        if match:
            yield name, match.group('version') or '(version unknown)'


def _ships_pilot(metadata: str) -> bool:
    """Return whether the distribution installed `radical/pilot`, or an editable link to it."""
    for listing in _LISTINGS:
        try:
            with open(os.path.join(metadata, listing), encoding='utf-8', errors='replace') as stream:
                text = stream.read()
        except OSError:  # an installer writes only one of the listings
            continue
        return 'radical/pilot/' in text or '__editable__' in text
    return False

