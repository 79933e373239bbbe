"""The program `rp-rank`, which a launcher starts for each rank: it replaces the exec script, or runs it.

When a rank ends, `rp-rank` kills all processes that the rank has left on its node. It runs the exec script of ranks
that need a shell (`of_script`). For other ranks it does the work of that script itself, because a shell, `date` and
`taskset` cost some 5 ms of CPU time per rank, as much as some launchers. It reads a plan (`rank.c`): a file of
NUL-terminated strings, in this order.

    rp-rank 2                              format
    uid, launcher, sandbox, notes          as in `rank_script.started_by_launcher`
    1 if ranks note all ends, else 0
    trace                                  path; empty for no trace
    1 for all events, else 0               the start and the stop of the program are always recorded
    environment                            path of a file of NUL-terminated NAME=VALUE strings, set first; may be empty
    memory                                 limit in bytes
    variables of the task                  their number, then NAME=VALUE of each
    variables with the rank's number       their number, then their names; none if there is one rank
    share of each rank                     the number of ranks, then the index of the share of each
    shares                                 their number, then CPUs (0-3,8) and variables of each
    variables of the description           their number, then NAME=VALUE of each
    program and arguments                  their number, then each
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rp_agent.executor.launching.rank_script import NOTES, RankShare
from rp_agent.executor.launching.script import fit_for_a_row
from rp_agent.launch_method.nodes import ranges
from rp_api.system.shell_text import has_command
from rp_profiling.write.detail import Detail

NAME = 'rp-rank'
FORM = f'{NAME} 2'

_BUILT = Path(__file__).with_name('rank')
_USAGE = 2
_TRIAL_TIMEOUT = 10.0
"""Seconds for the copy of the program, and for its trial run."""


def installed(sandbox: str) -> str:
    """Install the program in a pilot's sandbox, and return its path; empty if it cannot be executed there."""
    path = os.path.join(sandbox, NAME)
    own = f'{path}.{os.getpid()}'   # another agent of the pilot may install it at the same time
    try:
        # `cp`, because a child forked while this process had the file open for writing would cause ETXTBSY
        subprocess.run(['cp', _BUILT, own], capture_output=True, check=True, timeout=_TRIAL_TIMEOUT)
        os.replace(own, path)
        done = subprocess.run([path], capture_output=True, timeout=_TRIAL_TIMEOUT)
    except (OSError, subprocess.SubprocessError):
        with suppress(OSError):
            os.unlink(own)
        return ''
    return path if done.returncode == _USAGE else ''


def of_script(program: str, script: str, notes: str) -> tuple[str, ...]:
    """Return the command of a rank that needs a shell, run by `program`, which notes usage, unless it is empty."""
    return (program, 'run', notes, '/bin/sh', script) if program else ('/bin/sh', script)


def is_enough(description: Mapping[str, Any], sandbox: str) -> bool:
    """Return whether a task needs no shell: it has no commands, and no text to expand."""
    if any(description[name] for name in ('pre_exec', 'post_exec', 'named_env', 'pre_exec_sync')):
        return False
    if description['literal_arguments']:
        return True
    texts = (*description['arguments'], *description['environment'].values())
    return not has_command(description, sandbox) and not any('$' in text or '`' in text for text in texts)


def plan(uid: str, sandbox: str, description: Mapping[str, Any], told: Mapping[str, str], shares: Sequence[RankShare],
         rank_variables: Sequence[str], *, launcher: str, base: str, memory: int, trace: str, detail: Detail,
         ends: bool) -> str:
    """Return the text of the plan; raise ValueError if a string contains a NUL character."""
    known = list(dict.fromkeys(shares))
    position = {share: str(number) for number, share in enumerate(known)}
    words = [FORM, fit_for_a_row(uid), launcher, sandbox, f'{sandbox}/{uid}{NOTES}', str(int(ends)),
             trace if detail.on else '', str(int(detail.records('exec_start'))), base, str(memory)]
    words += _counted(_assignments(told))
    words += _counted(rank_variables if len(shares) > 1 else ())
    words += _counted([position[share] for share in shares])
    words.append(str(len(known)))
    for share in known:
        words += [ranges(sorted(share.cpus)) if share.cpus else '', *_counted(_assignments(dict(share.variables)))]
    words += _counted(_assignments(description['environment']))
    words += _counted((description['executable'], *description['arguments']))
    for word in words:
        if '\0' in word:
            raise ValueError(f'a NUL character cannot be passed to a program: {word!r}')
    return '\0'.join(words) + '\0'


def _assignments(variables: Mapping[str, str]) -> list[str]:
    return [f'{name}={value}' for name, value in variables.items()]


def _counted(words: Iterable[str]) -> list[str]:
    found = list(words)
    return [str(len(found)), *found]
