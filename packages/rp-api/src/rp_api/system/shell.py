"""The shell that runs the commands of users: that of the platform definition, else bash, else /bin/sh.

Every host finds its own: of the nodes of a pilot, some may have no bash. A process that starts scripts on its own host
finds the shell once (`find_shell`); a script that a launcher starts on an unknown host continues in the shell there
(`opening`).
"""

from __future__ import annotations

import os
from shlex import quote

from rp_api.errors import PlatformError

FALLBACK = '/bin/sh'
"""Path of the shell that every host has."""

_PREFERRED = 'bash'

_OPENING = """\
#!/bin/sh
if test -z "${{RP_IN_SHELL:-}}"{found}; then
    export RP_IN_SHELL=yes
    exec {shell} "$0" "$@"
fi
unset RP_IN_SHELL"""


def find_shell(named: str, search_path: str) -> str:
    """Return the path of the shell for users' commands on this host.

    Args:
        named: The shell of the platform definition, an absolute path or the name of a program; empty for the default.
        search_path: The directories in which programs are searched, separated by colons, as in PATH.

    Raises:
        PlatformError: This host does not have the shell that is named.
    """
    path = named if named.startswith('/') else _search(named or _PREFERRED, search_path)
    if path and os.access(path, os.X_OK):
        return path
    if named:
        raise PlatformError(f'the shell {named!r} of the platform definition is not on {os.uname().nodename} (PATH: '
                            f'{search_path})')
    return FALLBACK


def opening(named: str) -> list[str]:
    """Return the first lines of a script that `/bin/sh` starts on any host, and that continues in the shell there.

    The shell replaces `/bin/sh` in the same process. Without the shell that is named, the script fails; without bash,
    which is the default, it continues in `/bin/sh`.
    """
    found = '' if named else f' && command -v {_PREFERRED} >/dev/null 2>&1'
    return _OPENING.format(found=found, shell=quote(named or _PREFERRED)).splitlines()


def _search(name: str, search_path: str) -> str:
    """Return the path of a program in the absolute directories of a search path; empty if there is none."""
    paths = (f'{directory}/{name}' for directory in search_path.split(':') if directory.startswith('/'))
    return next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), '')
