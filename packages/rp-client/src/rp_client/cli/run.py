"""The command `rp run`: runs a program with many inputs on a pilot, without any Python."""

from __future__ import annotations

import argparse
import io
import signal
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rp_client.cli.run_inputs import UsageError, jobs, rows, split, varying

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from rp_client.cli.run_inputs import Job

_MOST = 100
"""Failed tasks that the exit code counts; it is one more if there are more."""

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
    parser = _parser()
    options = parser.parse_args(arguments)
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
                print(job.line)
            return 0
        return _run(options, arguments, found, varying(command, len(first), shell=options.shell))
    except UsageError as error:
        parser.error(str(error))


def _pass_all_bytes() -> None:
    """Let standard streams pass all bytes: names of files and outputs of programs may be no UTF-8."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding='utf-8', errors='surrogateescape')
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(newline='\n')


def _run(options: argparse.Namespace, arguments: list[str], found: Iterator[Job], positions: list[int]) -> int:
    """Run the tasks, and return the exit code."""
    from rp_client.cli.joblog import Joblog, default_path
    from rp_client.cli.run_tasks import run_tasks
    from rp_client.executor.allocation import describe

    try:
        pilot = describe(options.cores, options.nodes, options.gpus, options.resource, options.runtime, options.project,
                         options.queue)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    wanted = [word for word in arguments if word != '--resume']
    log = Joblog(Path(options.joblog) if options.joblog else default_path(wanted), resume=options.resume)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:   # not under nohup
            signal.signal(number, _end)
    try:
        failed = run_tasks(pilot, found, positions, _attributes(options), log, keep_order=options.keep_order)
    except (KeyboardInterrupt, SystemExit):
        print(f'rp run: interrupted; the same command with --resume goes on ({log.path})', file=sys.stderr)
        raise
    finally:
        log.close()
    if failed:
        print(f'rp run: {failed} {"task" if failed == 1 else "tasks"} failed; the same command with --resume repeats '
              f'{"it" if failed == 1 else "them"} ({log.path})', file=sys.stderr)
    return min(failed, _MOST + 1)


def _end(number: int, _: FrameType | None) -> None:
    """End as after Ctrl-C: the pilot and its tasks end, too."""
    raise SystemExit(128 + number)


def _attributes(options: argparse.Namespace) -> dict[str, Any]:
    """Return the attributes of the description of all tasks."""
    wanted = {'ranks': options.ranks, 'cores_per_rank': options.cores_per_task, 'gpus_per_rank': options.gpus_per_task,
              'timeout': options.timeout, 'retries': options.retries}
    return {name: value for name, value in wanted.items() if value is not None}


def _parser() -> argparse.ArgumentParser:
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
    tasks.add_argument('--timeout', type=float, metavar='SECONDS', help='end tasks that run longer')
    tasks.add_argument('--retries', type=int, metavar='N', help='repeat a task that fails, up to N times')
    show = parser.add_argument_group('output')
    show.add_argument('-k', '--keep-order', action='store_true', help='show outputs in the order of the inputs')
    show.add_argument('--dry-run', action='store_true', help='show the commands, and run nothing')
    show.add_argument('--resume', action='store_true', help='run only what the same command, or this journal, has not '
                      'done')
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
