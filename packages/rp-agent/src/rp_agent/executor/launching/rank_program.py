"""The program `rp-rank`, which a launcher starts for each rank: in place of the exec script if that needs no shell.

It sees to it that nothing is left of a rank that has ended, on whichever node, and however processes have tried to get
away. The exec script of ranks that need a shell is run by it (`of_script`).

A shell, `date` for the times in its trace and `taskset` cost a rank some 5 ms of CPU time, as much as some launchers
need to start it. The program does the same (`rank.c`), from a plan: a file of strings that end with NUL, in this order.

    rp-rank 2                              the form
    uid, launcher, sandbox, notes          as `rank_script.started_by_launcher` has them
    1 if ranks note all ends, else 0
    trace                                  empty if there is none
    1 if it has all events, else 0         the start and the stop of the program are recorded in any case
    environment                            a file of NAME=VALUE, also NUL-separated, to be set first; empty if none
    memory                                 bytes
    variables of the task                  their number, then NAME=VALUE of each
    names of the rank's number             the same, none if there is one rank
    share of each rank                     the number of ranks, then the position of each one's share
    shares                                 their number, then of each its CPUs (0-3,8), and its variables as above
    variables that the user wants          as above
    program and arguments                  as above
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
from rp_profiling.write.detail import Detail

NAME = 'rp-rank'
FORM = f'{NAME} 2'

_BUILT = Path(__file__).with_name('rank')
_USAGE = 2
_TRIAL_TIMEOUT = 10.0   # seconds for the copy of the program, and for its trial run


def installed(sandbox: str) -> str:
    """The path of the program in a pilot's sandbox, which all nodes see; empty if it cannot be executed there."""
    path = os.path.join(sandbox, NAME)
    own = f'{path}.{os.getpid()}'   # another agent of the pilot may be at it, too
    try:
        # a program that this process had open for writing could not be executed while some child of it has not started
        subprocess.run(['cp', _BUILT, own], capture_output=True, check=True, timeout=_TRIAL_TIMEOUT)
        os.replace(own, path)
        done = subprocess.run([path], capture_output=True, timeout=_TRIAL_TIMEOUT)
    except (OSError, subprocess.SubprocessError):
        with suppress(OSError):
            os.unlink(own)
        return ''
    return path if done.returncode == _USAGE else ''


def of_script(program: str, script: str) -> tuple[str, ...]:
    """What a launcher starts for a rank that needs a shell, with `program` if there is one."""
    return (program, 'run', '/bin/sh', script) if program else ('/bin/sh', script)


def is_enough(description: Mapping[str, Any]) -> bool:
    """Whether a task needs no shell: there are no commands to run, and no text to expand."""
    if any(description[name] for name in ('pre_exec', 'post_exec', 'named_env', 'pre_exec_sync')):
        return False
    texts = (description['executable'], *description['arguments'], *description['environment'].values())
    return not any('$' in text or '`' in text for text in texts)


def plan(uid: str, sandbox: str, description: Mapping[str, Any], told: Mapping[str, str], shares: Sequence[RankShare],
         rank_variables: Sequence[str], *, launcher: str, base: str, memory: int, trace: str, detail: Detail,
         ends: bool) -> str:
    """The text of the plan; `ValueError` if something holds a NUL character."""
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
