"""The text of activation scripts: exports of the variables that an activated environment changes.

The script costs a task no process. Where an environment extends a variable like PATH, the script extends the value that
the task has, which its launcher may have changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from shlex import quote

from rp_agent.bootstrap.environment import is_of_a_process

_IDENTIFIER = re.compile(r'[A-Za-z_][A-Za-z0-9_]*\Z')

_PROTECTED = frozenset(('CUDA_VISIBLE_DEVICES', 'ROCR_VISIBLE_DEVICES'))
_PROTECTED_BEGINS = ('RP_', 'rp_', 'SLURM_', 'FLUX_')


def shared(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that an environment may set: not those of the pilot, of a launcher, or of one process."""
    return {name: value for name, value in variables.items()
            if _IDENTIFIER.match(name) and name not in _PROTECTED and not name.startswith(_PROTECTED_BEGINS)
            and not is_of_a_process(name)}


def activation_script(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the script that turns the variables `before` an activation into those `after` it."""
    old, new = shared(before), shared(after)
    lines = [_export(name, old.get(name, ''), value) for name, value in sorted(new.items()) if old.get(name) != value]
    lines += [f'unset {name}' for name in sorted(old.keys() - new.keys())]
    return ''.join(f'{line}\n' for line in lines)


def listing(variables: Mapping[str, str]) -> str:
    """Return the variables that an environment may set, as `env` lists them."""
    return ''.join(f'{name}={value}\n' for name, value in sorted(shared(variables).items()))


def _export(name: str, old: str, new: str) -> str:
    if old and new.endswith(f':{old}'):
        return f'export {name}={quote(new.removesuffix(f":{old}"))}"${{{name}:+:${name}}}"'
    if old and new.startswith(f'{old}:'):
        return f'export {name}="${{{name}:+${name}:}}"{quote(new.removeprefix(f"{old}:"))}'
    return f'export {name}={quote(new)}'
