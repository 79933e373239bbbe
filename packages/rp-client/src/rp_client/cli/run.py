"""The command `rp run`: runs a program with many inputs on a pilot, without any Python."""

from __future__ import annotations

import argparse
import io
import json
import shlex
import signal
import sys
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_api.errors import PilotError
from rp_api.units import option, seconds
from rp_client.cli.runs.run_inputs import Job, UsageError, jobs, rows, split, varying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from rp_client.cli.runs.joblog import Joblog
    from rp_client.cli.runs.run_file import RunFile

_MAX_COUNTED = 100
"""Failed tasks that the exit code counts; it is one more if there are more."""

_ABOUT_EARLIER = ('--resume', '--force')
"""Options with which the command is the same as without them."""

_EXAMPLES = '''
  rp run --cores 8 -- ./sim --temp {1} --seed {2} ::: 280 290 300 ::: $(seq 100)
  ls *.dat | rp run --shell 'gzip -c {} > out/{/.}.gz'

placeholders: {} all inputs, {1} the input of the first source, {#} the number of the task; {/} without the directory,
{//} the directory, {.} without the extension, {/.} without both; {1/} and so on. A command without placeholders gets
the inputs as its last arguments. Inputs are passed literally, unless --shell is given.
'''


def run(arguments: list[str]) -> int:
    """Run a program with many inputs, such as files or parameters, on a pilot."""
    _pass_all_bytes()
    parser = make_parser()
    options = parser.parse_args(arguments)
    if sys.stdout is None or sys.stderr is None:
        raise PilotError('outputs cannot be shown: standard output or standard error is closed; redirect what is not '
                         'needed to /dev/null')
    if options.resume and options.force:
        parser.error('--resume goes on with an earlier run, and --force ends it: give one of them')
    words = options.words[1:] if options.words[:1] == ['--'] else options.words
    try:
        command, sources = split(words)
        inputs = rows(sources, options.arg_file)
        first = next(inputs, None)
        if first is None:
            return 0
        found = jobs(command, chain([first], inputs), shell=options.shell)
        if options.dry_run:
            for job in found:
                print(json.dumps({'number': job.number, 'command': job.words}) if options.json else job.line)
            return 0
        return _run(options, arguments, found, varying(command, len(first), shell=options.shell))
    except UsageError as error:
        parser.error(str(error))


def _pass_all_bytes() -> None:
    """Make standard streams pass all bytes: names of files and outputs of programs may be no UTF-8."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding='utf-8', errors='surrogateescape')
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(newline='\n')


def _run(options: argparse.Namespace, arguments: list[str], found: Iterator[Job], positions: list[int]) -> int:
    """Run the tasks, and return the exit code."""
    from rp_client.cli.runs.joblog import default_path
    from rp_client.cli.runs.run_tasks import run_tasks
    from rp_client.executor.allocation import describe

    try:
        pilot = describe(options.cores, options.nodes, options.gpus, options.resource, options.runtime, options.project,
                         options.queue)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    wanted = [word for word in arguments if word not in _ABOUT_EARLIER]
    path = Path(options.joblog) if options.joblog else default_path(wanted)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:   # not under nohup
            signal.signal(number, _end)
    try:
        failed = _run_for(path, options, wanted, lambda log, file: run_tasks(
            pilot, found, positions, _attributes(options), log, file, keep_order=options.keep_order,
            as_json=options.json))
    except (KeyboardInterrupt, SystemExit):
        print(f'rp run: interrupted; the same command with --resume goes on ({path})', file=sys.stderr)
        raise
    if failed:
        print(f'rp run: {failed} {"task" if failed == 1 else "tasks"} failed; the same command with --resume repeats '
              f'{"it" if failed == 1 else "them"} ({path})', file=sys.stderr)
    return min(failed, _MAX_COUNTED + 1)


def _run_for(path: Path, options: argparse.Namespace, wanted: list[str],
             run: Callable[[Joblog, RunFile], int]) -> int:
    """Run the tasks with this journal; raise `PilotError` if it has a run that is not over and is not asked for."""
    from rp_client.cli.runs.joblog import Joblog
    from rp_client.cli.runs.run_file import RunFile, RunningElsewhere
    from rp_client.cli.runs.run_tasks import end_earlier, goes_on

    ways = (f'to go on with it: {shlex.join(["rp", "run", "--resume", *wanted])}\n'
            f'to end it and begin anew: {shlex.join(["rp", "run", "--force", *wanted])}')
    try:
        opened = RunFile(path, force=options.force)
    except RunningElsewhere as error:
        raise PilotError(f'the run of {path} is not over, it is that of {error}; once this process has ended,\n{ways}'
                         ) from None
    with closing(opened) as file:
        if not options.resume and not options.force and goes_on(file):
            raise PilotError(f'the run of {path} goes on without its process, in the session {file.uid} (rp session '
                             f'list);\n{ways}')
        if not options.resume:
            end_earlier(file)
        with closing(Joblog(path, resume=options.resume)) as log:
            return run(log, file)


def _end(number: int, _: FrameType | None) -> None:
    """End as after Ctrl-C: the pilot and its tasks end, too."""
    raise SystemExit(128 + number)


def _attributes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the attributes of the description of all tasks."""
    wanted = {'ranks': options.ranks, 'cores_per_rank': options.cores_per_task, 'gpus_per_rank': options.gpus_per_task,
              'timeout': options.timeout, 'retries': options.retries}
    return {name: value for name, value in wanted.items() if value is not None}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(
        prog='rp run', allow_abbrev=False, description=run.__doc__, epilog=f'examples:{_EXAMPLES}',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage='rp run [OPTION ...] [--] COMMAND [ARGUMENT ...] [::: INPUT ...] [:::+ INPUT ...] [:::: FILE ...]')
    parser.add_argument('words', nargs=argparse.REMAINDER, metavar='COMMAND', help='the program, its arguments, and '
                        'the sources of inputs; without any, the lines of standard input')
    tasks = parser.add_argument_group('tasks')
    tasks.add_argument('-a', '--arg-file', action='append', default=[], metavar='FILE', help='a source of inputs, one '
                       'in each line; - is standard input')
    tasks.add_argument('--shell', action='store_true', help='COMMAND is a line of a shell, in which inputs are quoted')
    tasks.add_argument('--ranks', type=int, metavar='N', help='processes of each task (default: 1)')
    tasks.add_argument('--cores-per-task', type=int, metavar='N', help='cores of each process (default: 1)')
    tasks.add_argument('--gpus-per-task', type=float, metavar='N', help='GPUs of each process (default: 0)')
    tasks.add_argument('--timeout', type=option(seconds), metavar='TIME', help='end tasks that run longer: seconds, or '
                       'such as 90m')
    tasks.add_argument('--retries', type=int, metavar='N', help='repeat a task that fails, up to N times')
    show = parser.add_argument_group('output')
    show.add_argument('-k', '--keep-order', action='store_true', help='show outputs in the order of the inputs')
    show.add_argument('--json', action='store_true', help='show a line of JSON for each task, with its outputs')
    show.add_argument('--dry-run', action='store_true', help='show the commands, and run nothing')
    show.add_argument('--resume', action='store_true', help='run only what the same command, or this journal, has not '
                      'done; what still runs of it is waited for')
    show.add_argument('--force', action='store_true', help='end what still runs of the same command, and begin anew')
    show.add_argument('--joblog', metavar='FILE', help='the journal (default: one for each command line)')
    pilot = parser.add_argument_group('pilot')
    pilot.add_argument('--cores', type=int, metavar='N', help='cores (default: those of this machine)')
    pilot.add_argument('--gpus', type=int, metavar='N', help='GPUs')
    pilot.add_argument('--nodes', type=int, metavar='N', help='whole nodes')
    pilot.add_argument('--resource', metavar='LABEL', help='the platform (default: this machine), see rp platforms')
    pilot.add_argument('--runtime', metavar='TIME', help='such as 90m or 2h (default here: no limit)')
    pilot.add_argument('--queue', metavar='NAME', help='the queue of the batch system')
    pilot.add_argument('--project', metavar='NAME', help='the project that is charged')
    return parser
