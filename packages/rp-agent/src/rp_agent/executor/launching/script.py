"""Texts of a task's shell scripts, for bash in its own mode and for any POSIX shell (see `rp_api.system.shell`).

`<uid>.exec.sh` runs one rank; `<uid>.launch.sh` runs all of them. Their steps and events follow the order of the
RADICAL-Pilot event model. A `RankContext` has the parts that depend on the process that starts the rank: the agent
(`started_by_agent`) or a launcher (`rank_script`).

The agent may pass two descriptors. A byte written to START signals that the task runs. SYNC is the write end of a pipe
that all ranks share: a rank that is ready closes it and waits for the end of the pipe, which comes when all ranks have
closed it or ended. The user's commands do not inherit these descriptors. But a subshell of a command keeps those of the
rank, even if the rank is killed; the agent then kills the subshell. It cannot do so for ranks that the launch script
starts: there, a process of that script holds SYNC for each rank until the rank sends it SIGUSR1 or ends, and the rank
has only the read end, as ALL_READY.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rp_agent.lookup import LaunchRefused
from rp_agent.task import AgentTask
from rp_api.description.environment import OWN
from rp_api.system.shell_text import arguments_of, command_line, has_command, literal, shell_quote, texts_of, values_of
from rp_profiling.write.detail import Detail

START = 3
SYNC = 4
ALL_READY = 5

_IDENTIFIER = re.compile(r'[A-Za-z_][A-Za-z0-9_]*\Z')
_UNFIT_FOR_A_ROW = re.compile(r'[\x00-\x1f\x7f,"]')
_HIDDEN = f'{START}>&- {SYNC}>&-'

# The signal interrupts `wait`, with an exit code of its own, also when the rank ends at this moment: wait again.
_KEEPS_SYNC = f'''\
rp_keep() {{
    exec {START}>&-
    while :; do
        rp_ready=
        wait "$1"
        rp_code=$?
        test -n "$rp_ready" && test "$rp_code" -gt 128 && test "$(kill -l "$rp_code")" = USR1 || exit "$rp_code"
    done
}}'''

_FAILED = '''\
rp_failed() {
    printf '%s failed with exit code %s: %s\\n' "$1" "$2" "$3" >&2
    exit 1
}'''

# like `$RP_PROF`, but without a process per event in shells that have EPOCHREALTIME; others run `date`
_RECORD = '''\
rp_event() {
    test -n "${RP_PROF_TGT:-}" || return 0
    rp_now=${EPOCHREALTIME:-$(date +%%s.%%N)}
    rp_part=${rp_now#*[.,]}
    case $rp_part in (*[!0-9]*) rp_part=0 ;; esac
    while test "$#" -gt 0; do
        printf '%%s.%%.7s,%%s,,MainThread,%%s,AGENT_EXECUTING,%%s\\n' "${rp_now%%%%[.,]*}" "${rp_part}0000000" "$1" \\
            %s "$2"
        shift 2
    done >> "$RP_PROF_TGT"
} 2> /dev/null'''


class RankContext(NamedTuple):
    """The parts of an exec script that depend on the process that starts the rank, as lines of shell code.

    `opens` are the first lines, `begins` sets the number of the rank and applies its share, `starts` signals that the
    rank runs, `waits` returns when all ranks are ready, `heeds` traps signals for the program that starts next, `runs`
    waits for that program, `$RP_RANK_PID`, and sets RP_RET to its exit code. `hidden` closes the descriptors that the
    user's commands must not inherit.
    """

    opens: Sequence[str]
    begins: Sequence[str]
    starts: Sequence[str] = ()
    waits: Sequence[str] = ()
    heeds: Sequence[str] = ()
    runs: Sequence[str] = ('wait "$RP_RANK_PID"', 'export RP_RET=$?')
    hidden: str = ''


def started_by_agent(shell: str, *, sync: bool = False, signals_start: bool = False,
                     launched: bool = False) -> RankContext:
    """Return the context of ranks that `shell` runs, with their number in RP_RANK.

    They are `launched` if a launch script starts them.
    """
    ready = 'kill -USR1 "$PPID"' if launched else f'exec {ALL_READY}</proc/self/fd/{SYNC} {SYNC}>&- || exit 1'
    return RankContext(
        opens=[f'#!{shell}'],
        begins=['export RP_RANK="${RP_RANK:-0}"'],
        starts=[f'echo 1 >&{START}', f'exec {START}>&-'] if signals_start else [],
        waits=[ready, f'read -r rp_all <&{ALL_READY}', f'exec {ALL_READY}<&-'] if sync else [],
        hidden=f'{_HIDDEN} {ALL_READY}<&-' if sync and launched else _HIDDEN)


def exec_script(task: AgentTask, told: Mapping[str, str], context: RankContext, *, detail: Detail) -> str:
    """Return the script of one rank, which sets the variables `told` and records the events that `detail` selects.

    Its exit code is that of the executable, or 1 if a command before or after it fails.
    """
    description = task.description
    hidden = context.hidden
    record = _Record(task.uid, detail)
    lines = [*context.opens, *exports(told), *context.begins, 'export RP_EXEC_PID=$$', *record.functions,
             'cd "$RP_TASK_SANDBOX" || exit 1', *context.starts]
    record.note('exec_start')
    if description['named_env'] not in ('', OWN):   # the variables of the agent's own are among those `told`
        lines += record.lines()
        lines.append(f'. "$RP_PILOT_SANDBOX"/env/{literal("rp_named_env." + description["named_env"] + ".sh")} '
                     '|| exit 1')
    if description['environment']:
        lines += [*record.lines(), *_assignments(values_of(description))]
    record.note('exec_pre')
    if description['pre_exec'] or context.waits:
        lines += [*record.lines(), *_commands('pre_exec', description['pre_exec'], hidden), *context.waits]
    record.note('rank_start')
    if has_command(description, task.sandbox):
        program = command_line(description['executable'], arguments_of(description))
    else:
        program = ' '.join(map(shell_quote, texts_of(description)))
    lines += [*record.lines(), *context.heeds, f'{program} {hidden} &', 'export RP_RANK_PID=$!', *context.runs]
    record.note('rank_stop', '"RP_EXEC_PID=$RP_EXEC_PID:RP_RANK_PID=$RP_RANK_PID"')
    record.note('exec_post')
    if description['post_exec']:
        lines += [*record.lines(), *_commands('post_exec', description['post_exec'], hidden)]
    record.note('exec_stop')
    return _text([*lines, *record.lines(), 'exit "$RP_RET"'])


def launch_script(task: AgentTask, told: Mapping[str, str], start: Sequence[str], shell: str, *, detail: Detail,
                  hidden: str = _HIDDEN) -> str:
    """Return the script for `shell` that runs all ranks by the lines `start`, which set RP_RET to their exit code."""
    description = task.description
    record = _Record(task.uid, detail)
    lines = [f'#!{shell}', *exports(told), 'export RP_LAUNCH_PID=$$', *record.functions, *record.lines('launch_start'),
             'cd "$RP_TASK_SANDBOX" || exit 1']
    record.note('launch_pre')
    if description['pre_launch']:
        lines += [*record.lines(), *_commands('pre_launch', description['pre_launch'], hidden)]
    lines += [*record.lines('launch_submit'), *start, 'export RP_RET']
    record.note('launch_collect')
    record.note('launch_post')
    if description['post_launch']:
        lines += [*record.lines(), *_commands('post_launch', description['post_launch'], hidden)]
    return _text([*lines, *record.lines('launch_stop'), 'exit "$RP_RET"'])


def start_ranks(ranks: Sequence[Mapping[str, str]], shell: str, execute: str, stdio: tuple[str, str], *,
                sync: bool = False) -> list[str]:
    """Return lines of a launch script by which `shell` runs the exec script `execute` for each rank.

    `ranks` are the variables of each. The ranks write to the two files `stdio`. RP_RET becomes the exit code of the
    first rank that failed.
    """
    stdout, stderr = literal(stdio[0]), literal(stdio[1])
    lines = [f': >{stdout}', f': >{stderr}', *([_KEEPS_SYNC] if sync else []), 'rp_ranks=']
    for variables in ranks:
        settings = ' '.join(f'{name}={literal(value)}' for name, value in variables.items())
        rank = f'{settings} {literal(shell)} {literal("./" + execute)} </dev/null >>{stdout} 2>>{stderr}'
        if sync:
            rank += f' {ALL_READY}</proc/self/fd/{SYNC} {SYNC}>&-'
            rank = f"{{ trap 'exec {SYNC}>&-; rp_ready=1' USR1; {rank} & rp_keep $!; }}"
        lines += [f'{rank} &', 'rp_ranks="$rp_ranks $!"']
    return [*lines, f'exec {_HIDDEN}', 'RP_RET=0', 'for rp_rank in $rp_ranks; do', '    wait "$rp_rank"',
            '    rp_code=$?', '    test "$RP_RET" -ne 0 || RP_RET=$rp_code', 'done']


def fit_for_a_row(text: str) -> str:
    """Replace the characters that a row of a trace cannot contain."""
    return _UNFIT_FOR_A_ROW.sub('_', text)


def exports(variables: Mapping[str, str]) -> list[str]:
    """Return lines that set variables to these values, without expansion."""
    return [f'export {name}={literal(value)}' for name, value in variables.items()]


class _Record:
    """Composes the lines that record events; events without a step between them share a line."""

    def __init__(self, uid: str, detail: Detail) -> None:
        self.functions = [*([_RECORD % literal(fit_for_a_row(uid))] if detail.on else []), _FAILED]
        self._detail = detail
        self._noted: list[str] = []

    def note(self, event: str, message: str = "''") -> None:
        """Add an event to the next lines; the message is a shell word."""
        if self._detail.records(event):
            self._noted.append(f'{event} {message}')

    def lines(self, event: str = '') -> list[str]:
        """Return lines that record the noted events, and this one."""
        if event:
            self.note(event)
        noted, self._noted = self._noted, []
        return [f'rp_event {" ".join(noted)}'] if noted else []


def _assignments(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if not _IDENTIFIER.match(name):
            raise LaunchRefused(f'environment has the variable {name!r}, which a shell cannot set, and this task needs '
                                f'a shell: allowed are letters, digits and underscores')
        yield f'export {name}={shell_quote(value)}'


def _commands(stage: str, entries: Sequence[str | Mapping[Any, str | list[str]]], hidden: str) -> Iterator[str]:
    """Yield lines that run the commands in order; those in a dict run only on the rank that is their key."""
    for entry in entries:
        if isinstance(entry, str):
            yield from _command(stage, entry, hidden)
        else:
            yield 'case "$RP_RANK" in'
            for rank, commands in entry.items():
                yield f'({literal(str(rank))})'
                for command in [commands] if isinstance(commands, str) else commands:
                    yield from _command(stage, command, hidden)
                yield ';;'
            yield 'esac'


def _command(stage: str, command: str, hidden: str) -> list[str]:
    """Return lines that run one command in the script's shell, so that it can set variables, and exit if it fails."""
    # the command is on separate lines, as it may end with a comment; the colon makes a bare comment a valid command
    return ['{ :', command, f'}} {hidden} || rp_failed {stage} "$?" {literal(command)}']


def _text(lines: list[str]) -> str:
    for line in lines:
        if '\0' in line:
            raise LaunchRefused(f'a shell script cannot contain a NUL character: {line!r}')
    return '\n'.join(lines) + '\n'
