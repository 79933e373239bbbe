"""What the script of a rank does where a launcher starts it, perhaps on another node.

The launcher tells a rank its number, by a variable of its own, and nothing else. So the script has a table of what each
rank gets: the CPUs that it binds itself to, the GPUs that it sees.

Launchers differ in what they make of ranks that fail, and some end with 0 whatever happens. So ranks leave notes in the
sandbox, in `<uid>.ranks`: `0 started` says that rank 0 runs its script, `3 7` that rank 3 ended with exit code 7.

Where ranks are to wait for each other, they share nothing but the file system. Each makes a file of its number in the
directory `<uid>.sync` when it is ready, or ends before that, and a guard does so for one that is killed; rank 0 counts
them and makes the file `go`. They look for it seldom in the end, once a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from rp_agent.executor.launching.expand import literal
from rp_agent.executor.launching.script import RankContext, exports
from rp_api.system.readable import open_regular

NOTES, SYNC = '.ranks', '.sync'
"""How the names of the notes and of the directory end."""

_STARTED = '0 started'
_ENDED = re.compile(r'\s*(\d{1,9})\s+(\d{1,9})\s*', re.ASCII)

_MOST = 64 << 20
"""Bytes of notes that are read; those of a million ranks are shorter."""

# A launcher that signals only the script means its program, which may be about to start, and whose end the script then
# waits for. Launchers that see an MPI program go wrong end all scripts at once: how this one has ended is noted before
# that can be its own end.
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

# a node may have a hundred ranks that wait, and each look costs a process; `sleep` may know no fractions of a second
_UNTIL = '''\
rp_until() {
    for rp_pause in 0.02 0.05 0.1 0.2 0.5; do
        "$@" && return
        sleep "$rp_pause" 2>/dev/null || sleep 1
    done
    until "$@"; do sleep 1; done
}'''


class RankShare(NamedTuple):
    """What one rank gets: the numbers of the CPUs that it is bound to (none: wherever it is), and its own variables."""

    cpus: tuple[int, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    def lines(self) -> list[str]:
        """Shell code that gives it to the shell that runs it."""
        lines = exports(dict(self.variables))
        if self.cpus:
            from rp_agent.launch_method.nodes import ranges  # with all that launch methods have in common

            cpus = ranges(sorted(self.cpus))
            lines.append(f'rp_said=$(taskset -pc {cpus} $$ 2>&1 >/dev/null) || '
                         f'echo "rank $RP_RANK is not bound to the CPUs {cpus}: $rp_said" >&2')
        return lines


def started_by_launcher(uid: str, sandbox: str, shares: Sequence[RankShare], rank_variables: Sequence[str], *,
                        launcher: str, base: str = '', memory: int = 0, sync: bool = False,
                        ends: bool = False) -> RankContext:
    """Context of ranks that find their number in the first of `rank_variables` that is set.

    `launcher` is what to call the launcher in messages. `base` is a script that sets the user's environment, where the
    launcher does not hand that on; `memory` are the bytes that each process may use for data, 0 for no limit. With
    `ends`, all ranks note that they have ended, not just those that fail.
    """
    stem = f'{sandbox}/{uid}'
    barrier = stem + SYNC if sync else ''
    begins = [f'. {literal(base)}'] if base else []
    begins += [*_number(len(shares), rank_variables, launcher), *_notes(stem + NOTES, barrier, ends),
               *(_guard(barrier) if sync else []), *_table(shares)]
    if memory:
        begins.append(f'ulimit -d {max(1, memory // 1024)}')
    return RankContext(begins=begins, waits=_waits(barrier, len(shares)) if sync else [], heeds=[_HEEDS], runs=[_RUNS])


def prepare(sandbox: str, uid: str, sync: bool) -> None:
    """Make the place where ranks meet, and remove what those of an earlier run have left in the sandbox."""
    stem = f'{sandbox}/{uid}'
    with suppress(FileNotFoundError):
        os.unlink(stem + NOTES)
    if sync:
        os.makedirs(stem + SYNC, exist_ok=True)
        for name in os.listdir(stem + SYNC):
            os.unlink(f'{stem}{SYNC}/{name}')


def read_notes(sandbox: str, uid: str) -> tuple[bool, dict[int, int]]:
    """Whether rank 0 has started, and the exit codes of the ranks that failed, as far as they have told."""
    lines = _noted(sandbox, uid)
    if lines is None:
        return False, {}
    # nodes that write to one file at the same time may spoil a line
    pairs = (match for line in lines if line != _STARTED and (match := _ENDED.fullmatch(line)) is not None)
    return True, {int(pair[1]): code for pair in pairs if (code := int(pair[2]))}


def have_ended(sandbox: str, uid: str) -> int:
    """How many ranks have noted that they have ended, if all are told to."""
    return sum(line != _STARTED for line in _noted(sandbox, uid) or ())


def _noted(sandbox: str, uid: str) -> list[str] | None:
    """The lines that ranks have noted; None if there is no such file."""
    try:
        with open_regular(f'{sandbox}/{uid}{NOTES}') as file:
            return file.read(_MOST).decode('ascii', 'replace').splitlines()
    except OSError:
        return None


def _number(ranks: int, variables: Sequence[str], launcher: str) -> list[str]:
    value = ''
    for name in reversed(variables):
        value = f'${{{name}:-{value}}}'
    if ranks == 1:
        return ['export RP_RANK=0']
    complaint = literal(f'{launcher} did not tell this rank its number (in {", ".join(variables) or "any variable"})')
    return [f'export RP_RANK="{value}"', f'test -n "$RP_RANK" || {{ echo {complaint} >&2; exit 1; }}']


def _notes(path: str, barrier: str, ends: bool) -> list[str]:
    """Lines that note the start of rank 0, and the failure of this one or its end, however the script ends."""
    ready = ['    kill -KILL "$rp_guard" 2>/dev/null', *_left(barrier)] if barrier else []
    well = [f'    test -n "${{rp_noted:-}}" || echo "$RP_RANK 0" >> {literal(path)}'] if ends else []
    return ['rp_note() {', '    test "$1" -ne 0 && test -z "${rp_noted:-}" || return 0', '    rp_noted=yes',
            f'    echo "$RP_RANK $1" >> {literal(path)}', '}',
            'rp_ended() {', '    rp_note "$1"', *well, *ready, '}',
            "trap 'rp_ended $?' EXIT",
            f'test "$RP_RANK" != 0 || echo {literal(_STARTED)} >> {literal(path)}']


def _left(barrier: str) -> list[str]:
    """Lines by which a rank that ends lets the others go on."""
    return [f'    : > {literal(barrier)}/"$RP_RANK"', f'    test "$RP_RANK" != 0 || : > {literal(barrier)}/go']


def _guard(barrier: str) -> list[str]:
    """Lines that start what does so for a rank that is killed; it is no child of the shell, which may wait for all."""
    return ['rp_guard=$( { while test -e /proc/$$/exe; do sleep 1; done', *_left(barrier),
            '} </dev/null >/dev/null 2>&1 & echo $!)']


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
    """Lines that give each rank its share; ranks that get the same, as on nodes that are alike, stand together."""
    ranks_of: dict[RankShare, list[int]] = {}
    for rank, share in enumerate(shares):
        ranks_of.setdefault(share, []).append(rank)
    if len(ranks_of) == 1:
        return shares[0].lines()
    lines = ['case "$RP_RANK" in']
    for share, ranks in ranks_of.items():
        lines += [f'({"|".join(map(str, ranks))})', *share.lines(), ';;']
    return [*lines, 'esac']
