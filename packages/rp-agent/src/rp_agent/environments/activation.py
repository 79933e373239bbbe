"""The text of activation scripts: exports of the variables that an activated environment changes.

The script costs a task no process. Where an environment extends a variable like PATH, the script extends the value that
the task has, which its launcher may have changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from shlex import quote

from rp_agent.bootstrap.environment import is_of_a_process

_IDENTIFIER = re.compile(r'[A-Za-z_][A-Za-z0-9_]*\Z')
_OF_THE_SCRIPT = 'rp_'


def shared(variables: Mapping[str, str], reserved: Sequence[str]) -> dict[str, str]:
    """Return the variables that an environment may set: identifiers that no pattern in `reserved` matches."""
    return {name: value for name, value in variables.items()
            if _IDENTIFIER.match(name) and not name.startswith(_OF_THE_SCRIPT) and not is_of_a_process(name)
            and not any(fnmatchcase(name, pattern) for pattern in reserved)}


def activation_script(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return the script that turns the variables `old`, before an activation, into those after it."""
    lines = [_export(name, old.get(name, ''), value) for name, value in sorted(new.items()) if old.get(name) != value]
    lines += [f'unset {name}' for name in sorted(old.keys() - new.keys())]
    return ''.join(f'{line}\n' for line in lines)


def listing(variables: Mapping[str, str]) -> str:
    """Return the variables as `env` lists them."""
    return ''.join(f'{name}={value}\n' for name, value in sorted(variables.items()))


def _export(name: str, old: str, new: str) -> str:
    if old and new.endswith(f':{old}'):
        return f'export {name}={quote(new.removesuffix(f":{old}"))}"${{{name}:+:${name}}}"'
    if old and new.startswith(f'{old}:'):
        return f'export {name}="${{{name}:+${name}:}}"{quote(new.removeprefix(f"{old}:"))}'
    return f'export {name}={quote(new)}'
