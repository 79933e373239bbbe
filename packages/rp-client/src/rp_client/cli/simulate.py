"""The command `rp simulate`: estimates how a workload uses a platform, without an allocation."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rp_api.units import minutes, option
from rp_client.cli import options as shared

if TYPE_CHECKING:
    from rp_client.simulation import Platform

_FIGURES = ('nodes', 'walltime', 'ttx', 'tasks', 'failed', 'undone', 'overhead', 'core_utilisation', 'gpu_utilisation',
            'count', 'utilisation', 'rate', 'peak_rate')   # the last four of calls


def simulate(arguments: list[str]) -> int:
    """Estimate how a workload uses a number of nodes, by a simulation."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if not options.platform and options.cores is None:
        parser.error('set the platform: --platform LABEL, or --cores NUMBER of each node')
    from rp_client.simulation.read import read
    from rp_client.simulation.result import compared

    platform, run = _platform(options), read(options.workload)
    result = run(platform, options.model, directory=options.output, seed=options.seed)
    others = [run(platform.sized(nodes), options.model, seed=options.seed) for nodes in options.compare]
    if options.json:
        shared.print_json([{name: getattr(each, name) for name in _FIGURES if hasattr(each, name)}
                           for each in (result, *others)])
    else:
        print(compared(result, others))
    if options.output:
        print(f'traces are in {options.output}: rp trace {options.output} report', file=sys.stderr)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(prog='rp simulate', description=simulate.__doc__, parents=[shared.as_json()])
    parser.add_argument('workload', metavar='WORKLOAD', help='a file with a description of tasks in each line (JSON), '
                        'or with function calls, or the directory of a session that was recorded')
    parser.add_argument('--nodes', type=int, required=True, metavar='N', help='nodes of each pilot')
    parser.add_argument('--platform', metavar='LABEL', help='the platform, for example ornl.summit')
    parser.add_argument('--cores', type=int, metavar='N', help="cores of a node (default: the platform's)")
    parser.add_argument('--gpus', type=int, metavar='N', help="GPUs of a node (default: the platform's)")
    parser.add_argument('--pilots', type=int, default=1, metavar='N',
                        help='number of pilots that share the tasks (default: 1)')
    parser.add_argument('--runtime', type=option(minutes), default=0, metavar='TIME', help='runtime of each pilot, in '
                        'minutes or such as 2h, after which tasks are not run (default: no limit)')
    parser.add_argument('--model', default='ours', metavar='MODEL', help='latencies: the name of a model, or a file '
                        '*.json (default: ours)')
    parser.add_argument('--compare', type=_numbers, default=[], metavar='N,...', help='other numbers of nodes to '
                        'estimate')
    parser.add_argument('--output', metavar='DIR', help='write a session with traces there, for rp trace')
    parser.add_argument('--seed', type=int, default=0, metavar='N', help='seed of random numbers (default: 0)')
    return parser


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(',')]


def _platform(options: argparse.Namespace) -> Platform:
    from rp_client.simulation import Platform

    if options.platform:
        return Platform.named(options.platform, options.nodes, options.pilots, options.cores, options.gpus,
                              options.runtime)
    return Platform.of(options.nodes, options.cores, options.gpus or 0, options.pilots, options.runtime)
