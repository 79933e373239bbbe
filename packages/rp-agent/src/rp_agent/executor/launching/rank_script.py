"""Exec scripts of ranks that a launcher starts, possibly on other nodes.

The launcher gives a rank only its number, in a variable. The script has a table of the share of each rank: the CPUs to
which it binds itself, and the GPUs that it sees.

Launchers report failed ranks in different ways, and some always end with 0. Ranks therefore leave notes in the sandbox,
in `<uid>.ranks`: `0 started` means that rank 0 runs its script (`0 started HOST` where no scheduler of ours has chosen
its host), `3 7` that rank 3 ended with exit code 7. `used` and numbers are the usage of a rank, which `rp-rank` notes:
CPU time of user and system in seconds, context switches, and bytes of memory of its largest process, read and written.

With `pre_exec_sync`, ranks synchronise by the file system, the only thing that they share. Each rank creates a file
named by its number in the directory `<uid>.sync` when it is ready, or when it ends before that; a guard does so for a
rank that is killed. Rank 0 counts the files and creates the file `go`. The others poll for it, at last once a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from rp_agent.executor.launching.script import RankContext, exports
from rp_api.system.readable import open_regular
from rp_api.system.shell import opening
from rp_api.system.shell_text import literal

NOTES, SYNC = '.ranks', '.sync'
"""Suffixes of the file of notes and of the directory for synchronisation."""

_STARTED = '0 started'
_USED = 'used'
_USAGE = re.compile(r'used (\d{1,9}\.\d{6}) (\d{1,9}\.\d{6}) (\d{1,15}) (\d{1,18}) (\d{1,18}) (\d{1,18})', re.ASCII)
_ENDED = re.compile(r'\s*(\d{1,9})\s+(\d{1,9})\s*', re.ASCII)

_NOTES_MAX_BYTES = 128 << 20
"""Maximum number of bytes of notes that are read; the notes of a million ranks are shorter."""

# A signal to the script is meant for its program, which may be about to start; the script passes it on and waits for
# the program. When an MPI program fails, launchers end all scripts at once; so the script notes the exit code before it
# lets such a signal end itself.
_HEEDS = '''\
unset RP_RANK_PID
trap 'rp_told=yes; kill -TERM "${RP_RANK_PID:-}" 2>/dev/null' HUP INT TERM'''

_RUNS = '''\
test -z "${rp_told:-}" || kill -TERM "$RP_RANK_PID" 2>/dev/null
while :; do
    wait "$RP_RANK_PID"
    export RP_RET=$?
    test "$RP_RET" -gt 128 && kill -0 "$RP_RANK_PID" 2>/dev/null || break
done
rp_note "$RP_RET"
trap - HUP INT TERM'''

# growing intervals: a hundred ranks of a node may wait, and each poll costs a process; some `sleep` take only integers
_UNTIL = '''\
rp_until() {
    for rp_pause in 0.02 0.05 0.1 0.2 0.5; do
        "$@" && return
        sleep "$rp_pause" 2>/dev/null || sleep 1
    done
    until "$@"; do sleep 1; done
}'''


class RankShare(NamedTuple):
    """The CPUs to which a rank is bound (empty: it is not bound), and its own variables."""

    cpus: tuple[int, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    def lines(self) -> list[str]:
        """Return shell code that binds the running shell and sets its variables."""
        lines = exports(dict(self.variables))
        if self.cpus:
            from rp_agent.launch_method.nodes import ranges  # imports the base of launch methods

            cpus = ranges(sorted(self.cpus))
            lines.append(f'rp_said=$(taskset -pc {cpus} $$ 2>&1 >/dev/null) || '
                         f'echo "rank $RP_RANK is not bound to the CPUs {cpus}: $rp_said" >&2')
        return lines


def started_by_launcher(uid: str, sandbox: str, shares: Sequence[RankShare], rank_variables: Sequence[str], *,
                        launcher: str, shell: str = '', base: str = '', memory: int = 0, sync: bool = False,
                        ends: bool = False, host: str = '') -> RankContext:
    """Return the context of ranks that find their number in the first of `rank_variables` that is set.

    `launcher` names the launcher in messages. `shell` is the shell of the platform definition, empty for the default.
    `base` is the path of a script that sets the user's environment, if the launcher does not pass it on. `memory` is
    the limit of the data of each process, in bytes, 0 for no limit. With `ends`, all ranks note their end, not only
    those that fail. Rank 0 notes its `host`, a shell word.
    """
    stem = f'{sandbox}/{uid}'
    barrier = stem + SYNC if sync else ''
    begins = [f'. {literal(base)} || exit 1'] if base else []
    begins += [*_number(len(shares), rank_variables, launcher), *_notes(stem + NOTES, barrier, ends, host),
               *(_guard(barrier) if sync else []), *_table(shares)]
    if memory:
        begins.append(f'ulimit -d {max(1, memory // 1024)}')
    waits = _waits(barrier, len(shares)) if sync else []
    return RankContext(opens=opening(shell), begins=begins, waits=waits, heeds=[_HEEDS], runs=[_RUNS])


def prepare(sandbox: str, uid: str, sync: bool) -> None:
    """Create the directory for synchronisation, and remove the notes and files of an earlier run."""
    stem = f'{sandbox}/{uid}'
    with suppress(FileNotFoundError):
        os.unlink(stem + NOTES)
    if sync:
        os.makedirs(stem + SYNC, exist_ok=True)
        for name in os.listdir(stem + SYNC):
            os.unlink(f'{stem}{SYNC}/{name}')


def read_notes(sandbox: str, uid: str) -> tuple[bool, dict[int, int]]:
    """Return whether rank 0 has started, and the noted exit codes of failed ranks."""
    lines = _noted(sandbox, uid)
    if lines is None:
        return False, {}
    # concurrent writes by several nodes may corrupt a line
    pairs = (match for line in lines if not line.startswith(_STARTED) and (match := _ENDED.fullmatch(line)) is not None)
    return True, {int(pair[1]): code for pair in pairs if (code := int(pair[2]))}


def have_ended(sandbox: str, uid: str) -> int:
    """Return the number of ranks that have noted their end, if all do (`ends` of `started_by_launcher`)."""
    return sum(not line.startswith((_STARTED, _USED)) for line in _noted(sandbox, uid) or ())


def read_usage(sandbox: str, uid: str) -> list[list[float]]:
    """Return the usage of each rank that has noted it, in the order of the notes."""
    return [list(map(float, match.groups())) for line in _noted(sandbox, uid) or ()
            if (match := _USAGE.fullmatch(line)) is not None]


def host_of(sandbox: str, uid: str) -> str:
    """Return the host that rank 0 has noted; empty before it has started."""
    found = (line.split() for line in _noted(sandbox, uid) or () if line.startswith(_STARTED))
    return next((words[2] for words in found if len(words) == 3), '')


def _noted(sandbox: str, uid: str) -> list[str] | None:
    """Return the lines of the notes; None if there is no such file."""
    try:
        with open_regular(f'{sandbox}/{uid}{NOTES}') as file:
            return file.read(_NOTES_MAX_BYTES).decode('ascii', 'replace').splitlines()
    except OSError:
        return None


def _number(ranks: int, variables: Sequence[str], launcher: str) -> list[str]:
    value = ''
    for name in reversed(variables):
        value = f'${{{name}:-{value}}}'
    if ranks == 1:
        return ['export RP_RANK=0']
    complaint = literal(f'{launcher} did not set the number of this rank (in {", ".join(variables) or "any variable"})')
    return [f'export RP_RANK="{value}"', f'test -n "$RP_RANK" || {{ echo {complaint} >&2; exit 1; }}']


def _notes(path: str, barrier: str, ends: bool, host: str) -> list[str]:
    """Return lines that note the start of rank 0, and the failure or end of this rank, in all exits of the script."""
    ready = ['    kill -KILL "$rp_guard" 2>/dev/null', *_left(barrier)] if barrier else []
    well = [f'    test -n "${{rp_noted:-}}" || echo "$RP_RANK 0" >> {literal(path)}'] if ends else []
    return ['rp_note() {', '    test "$1" -ne 0 && test -z "${rp_noted:-}" || return 0', '    rp_noted=yes',
            f'    echo "$RP_RANK $1" >> {literal(path)}', '}',
            'rp_ended() {', '    rp_note "$1"', *well, *ready, '}',
            "trap 'rp_ended $?' EXIT",
            f'test "$RP_RANK" != 0 || echo {literal(_STARTED)}{host and f" {host}"} >> {literal(path)}']


def _left(barrier: str) -> list[str]:
    """Return lines by which a rank that ends lets the others continue."""
    return [f'    : > {literal(barrier)}/"$RP_RANK"', f'    test "$RP_RANK" != 0 || : > {literal(barrier)}/go']


def _guard(barrier: str) -> list[str]:
    """Return lines that start the guard for a killed rank; not as a child of the shell, which may wait for all."""
    # a shell of its own starts it, as a command substitution of ksh waits for its background processes
    lines = ['{ while test -e "/proc/$1/exe"; do sleep 1; done', *_left(barrier),
             '} </dev/null >/dev/null 2>&1 & echo $!']
    guard = literal('\n'.join(lines))
    return [f'rp_guard=$(/bin/sh -c {guard} guard $$)']


def _waits(barrier: str, ranks: int) -> list[str]:
    where = literal(barrier)
    return [_UNTIL,
            f': > {where}/"$RP_RANK"',
            'if test "$RP_RANK" = 0; then',
            f'    rp_ready() {{ set -- {where}/[0-9]*; test "$#" -ge {ranks}; }}',
            '    rp_until rp_ready',
            f'    : > {where}/go',
            'fi',
            f'rp_until test -e {where}/go',
            'kill -KILL "$rp_guard" 2>/dev/null']


def _table(shares: Sequence[RankShare]) -> list[str]:
    """Return lines that set the share of each rank; ranks with the same share have one entry."""
    ranks_of: dict[RankShare, list[int]] = {}
    for rank, share in enumerate(shares):
        ranks_of.setdefault(share, []).append(rank)
    if len(ranks_of) == 1:
        return shares[0].lines()
    lines = ['case "$RP_RANK" in']
    for share, ranks in ranks_of.items():
        lines += [f'({"|".join(map(str, ranks))})', *share.lines(), ';;']
    return [*lines, 'esac']
