"""The parts of the system that are installed here: which are missing, and which must not be there.

The system comes in five distributions that work alone. Where one needs another (a local pilot needs the agent), it
asks this module, whose sentences name the `pip install` that helps.
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

# Metadata of a distribution named radical.pilot, in any spelling, in site-packages or in a source tree.
_UPSTREAM = re.compile(r'radical[._-]pilot(-(?P<version>[^-]+)(-.*)?)?\.(dist|egg)-info', re.IGNORECASE)
_LISTINGS = ('RECORD', 'installed-files.txt', 'SOURCES.txt')


def missing(dist: str) -> str | None:
    """The sentence that says how to install the distribution `dist`, or None if it is installed.

    `dist` is one of this project's distributions, such as 'rp-client'; any other is a KeyError.
    """
    purpose = _PURPOSE[dist]
    import importlib.util  # not needed until something is found missing

    spec = importlib.util.find_spec(dist.replace('-', '_'))
    # a left-over directory without __init__.py is found as a namespace, whose origin is None
    if spec is not None and spec.origin is not None:
        return None
    return f'{dist} is not installed, and it is needed for {purpose}: pip install {dist}'


def require(dist: str) -> None:
    """Returns if the distribution `dist` is installed, else raises a PilotError that says how to install it."""
    sentence = missing(dist)
    if sentence:
        raise PilotError(sentence)


def check_upstream(path: Sequence[str] | None = None) -> None:
    """Raises a PilotError if another distribution that ships `radical/pilot` is installed beside this one.

    pip installs both without a warning and the later one overwrites files of the earlier, so which code runs is
    chance. A distribution of the name `radical.pilot` that ships no such file does no harm and is accepted. `path`
    is what to search, by default `sys.path`.
    """
    for directory in sys.path if path is None else path:
        for name, version in _upstream_metadata(directory or os.curdir):
            if _ships_pilot(os.path.join(directory, name)):
                raise PilotError(
                    f'radical.pilot {version} is installed in {directory}, and rp-api ships the module radical.pilot '
                    'as well, so which of the two runs is chance. Remove both and install one: '
                    'pip uninstall radical.pilot rp-api, then pip install rp-api'
                )


def _upstream_metadata(directory: str) -> Iterator[tuple[str, str]]:
    """Metadata directory and version of each distribution named radical.pilot in `directory`.

    A look at the file names, since importlib.metadata takes longer to import than all of this to run.
    """
    try:
        names = os.listdir(directory)
    except OSError:  # sys.path may name what is not a directory, or not there
        return
    for name in names:
        match = _UPSTREAM.fullmatch(name)
        if match:
            yield name, match.group('version') or '(version unknown)'


def _ships_pilot(metadata: str) -> bool:
    """Whether the distribution installed `radical/pilot`, or an editable link to it."""
    for listing in _LISTINGS:
        try:
            with open(os.path.join(metadata, listing), encoding='utf-8', errors='replace') as stream:
                text = stream.read()
        except OSError:  # each installer writes only one of the listings
            continue
        return 'radical/pilot/' in text or '__editable__' in text
    return False

