"""Measure how many `/bin/true` tasks per second run on two cores, and compare with C programs in the same run.

    python benchmarks/tasks.py [--count N] [--runs N] [--cores N] [--work DIR]

The cases take turns, and each run of each case is a fresh process:

- system: everything from `submit_tasks` to all tasks DONE in the application: client, hub, agent; tracing on
- agent: the agent's components alone, in one process without client and hub; tracing on
- C bare, C files, C agent: what spawn.c does in these modes, with as many tasks in flight as there are cores

A ratio is the median of the ratios of each turn, so that a slow minute of the machine slows down both of its sides.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import common

PYTHON_CASES = ('system', 'agent', 'latency')
LIMITS = ('bare', 'files', 'agent')
BULK = 1024
"""Tasks that the agent's components are given at a time, as if they came from the hub."""
FLUSH = 1.0
"""Seconds between writes of traces, as in the agent."""

Result = dict[str, Any]


def system(work: str, count: int, cores: int) -> Result:
    """The whole system: descriptions are made, verified, submitted, and their tasks waited for."""
    with common.session(work, cores) as (_, _, tmgr):
        common.run_tasks(tmgr, 10)
        processes = {'application': os.getpid()} | named_children()
        before = {name: common.cpu_ticks(pid) for name, pid in processes.items()}
        begin = time.monotonic()
        tasks = common.run_tasks(tmgr, count)
        rate = count / (time.monotonic() - begin)
        cpu = {name: common.per_task(before[name], common.cpu_ticks(pid), count) for name, pid in processes.items()}
        assert all(os.path.isdir(str(task.sandbox)) for task in tasks[::100])
    return {'rate': rate, 'cpu': cpu, **left_behind(work, count)}


def named_children() -> dict[str, int]:
    """Hub and agent, found while no task runs."""
    names = {'rp_api.coordination.hub.main': 'hub', 'rp_agent.cli': 'agent'}
    found = {}
    for pid in common.others():
        command = Path(f'/proc/{pid}/cmdline').read_bytes().decode(errors='replace')
        for module, name in names.items():
            if module in command:
                # an agent may have several processes
                found[name if name not in found else f'{name} {pid}'] = pid
    assert set(names.values()) <= set(found), f'no hub or agent among {found}'
    return found


def left_behind(work: str, count: int) -> Result:
    """Count directories, files and rows of traces per task."""
    directories = files = rows = 0
    for path, inner, names in os.walk(work):
        directories += len(inner)
        files += len(names)
        for name in names:
            if name.endswith('.prof'):
                rows += Path(path, name).read_bytes().count(b'\n')
    return {'directories': directories / count, 'files': files / count, 'trace rows': rows / count}


def agent(work: str, count: int, cores: int) -> Result:
    """The components of an agent alone: tasks are put in in bulks, until all have left."""
    from rp_agent.components.stage import Owner
    from rp_agent.lineage import become_subreaper
    from rp_agent.pipeline.pipeline import Pipeline
    from rp_agent.resource_manager.base import Request
    from rp_agent.resource_manager.systems import fork
    from rp_agent.task import AgentTask
    from rp_api import states
    from rp_api.loop.event_loop import Loop
    from rp_api.loop.offload import Helpers

    become_subreaper()
    os.chdir(work)
    loop = Loop()
    helpers = Helpers(loop)
    out: list[AgentTask] = []

    class Agent(Owner):
        def left(self, tasks: Sequence[AgentTask]) -> None:
            out.extend(tasks)
            if len(out) == count:
                loop.call_soon(loop.stop)

        def broken(self, reason: str) -> None:
            sys.exit(reason)

    platform = {'agent_spawner': 'POPEN'}
    allocation = fork.allocate(Request(0, cores, 0), platform)
    config = {'session': 'rp.session.benchmark', 'pilot': 'pilot.0000', 'resource': 'local.exact',
              'client_sandbox': work, 'resource_sandbox': work, 'session_sandbox': work, 'pilot_sandbox': work,
              'registry_address': 'ipc:///nowhere', 'coordination': {}, 'profile': True, 'agent': {},
              'platform': platform, 'cpus': allocation.cpus, 'gpu_ids': allocation.gpu_ids}
    pipeline = Pipeline(config, loop, allocation, helpers.run, Agent())
    tasks = [AgentTask(uid, {'executable': '/bin/true', 'uid': uid}, 'pilot.0000', f'{work}/{uid}')
             for uid in map('task.{:06}'.format, range(count))]

    def flush() -> None:
        pipeline.flush_traces()
        loop.call_later(FLUSH, flush)

    loop.call_later(FLUSH, flush)
    before = common.cpu_ticks(os.getpid())
    begin = time.monotonic()
    for first in range(0, count, BULK):
        pipeline.put(tasks[first:first + BULK])
    loop.run()
    rate = count / (time.monotonic() - begin)
    cpu = {'agent': common.per_task(before, common.cpu_ticks(os.getpid()), count)}
    bad = [task for task in out if task.target_state != states.DONE]
    assert not bad, (bad[0].target_state, bad[0].exception, bad[0].exception_detail)
    helpers.close(1.0)
    pipeline.close()
    loop.close()
    return {'rate': rate, 'cpu': cpu, **left_behind(work, count)}


def latency(work: str, count: int, cores: int) -> Result:
    """One task at a time through the whole system."""
    times = sorted(1000 * seconds for seconds in common.latency_of_tasks(work, cores, count))
    return {'median': statistics.median(times), 'p90': times[int(0.9 * len(times))]}


def take_turns(options: argparse.Namespace) -> dict[str, list[Result]]:
    """The results of all cases, by name, one for each run."""
    results: dict[str, list[Result]] = {}
    with common.work_directory(options.work) as programs:
        program = common.c_program(programs)
        cases: dict[str, Callable[[str], Result]] = {
            'system': lambda work: in_fresh_process('system', work, options.count, options.cores),
            'agent': lambda work: in_fresh_process('agent', work, options.count, options.cores)}
        for mode in LIMITS:
            cases[f'C {mode}'] = partial(common.c_loop, program, mode, options.count, options.cores)
        cases['latency'] = lambda work: in_fresh_process('latency', work, min(200, options.count), options.cores)
        cases['C latency'] = lambda work: common.c_loop(program, 'agent', min(1000, options.count), 1, work)
        for turn in range(options.runs):
            for name, case in cases.items():
                common.progress(f'run {turn + 1} of {options.runs}: {name}')
                with common.work_directory(options.work) as work:
                    strangers = common.Strangers()
                    result = case(work)
                    result['strangers'] = strangers.share()
                results.setdefault(name, []).append(result)
    return results


def in_fresh_process(name: str, work: str, count: int, cores: int) -> Result:
    """One run of a case of this script."""
    return common.fresh(__file__, work, '--case', name, '--count', str(count), '--cores', str(cores))


def print_rates(results: dict[str, list[Result]], cores: int) -> None:
    """Tasks per second, the ratios to each limit, and how much of the cores it took; at 100 % CPU time is the limit."""
    rows = []
    for name, runs in results.items():
        if 'latency' in name:
            continue
        row = [name, *common.spread([run['rate'] for run in runs])]
        for mode in LIMITS:
            limits = results[f'C {mode}']
            row.append(f'{ratio([run["rate"] for run in runs], [limit["rate"] for limit in limits]):.2f}')
        used = statistics.median(sum(map(sum, run['cpu'].values())) * run['rate'] / 1e6 / cores for run in runs)
        strangers = statistics.median(run['strangers'] for run in runs)
        rows.append([*row, f'{100 * used:.0f} %', f'{strangers:.0f} %'])
    common.print_table(['case', 'tasks/s', 'min', 'max', *(f'of C {mode}' for mode in LIMITS), 'cores used',
                        'used by others'], rows)


def ratio(values: Sequence[float], references: Sequence[float]) -> float:
    """The median of the ratios of each turn."""
    return statistics.median(value / reference for value, reference in zip(values, references, strict=True))


def print_cpu(results: dict[str, list[Result]]) -> None:
    """Microseconds of CPU time per task, and the ratio to the C program that does as an agent does."""
    limit = [sum(run['cpu']['C program'][:2]) for run in results['C agent']]
    rows = []
    for name, runs in results.items():
        if 'latency' in name:
            continue
        for process in runs[0]['cpu']:
            used = [run['cpu'][process] for run in runs]
            user, kernel = (statistics.median(each[index] for each in used) for index in (0, 1))
            own = [sum(each[:2]) for each in used]
            tasks = statistics.median(sum(each[2:]) for each in used)
            rows.append([name, process, f'{user:.0f}', f'{kernel:.0f}', f'{statistics.median(own):.0f}',
                         f'{ratio(own, limit):.2f}', f'{tasks:.0f}'])
    common.print_table(['case', 'process', 'user / µs', 'system / µs', 'both / µs', 'of C agent', 'its tasks / µs'],
                       rows)


def print_latency(results: dict[str, list[Result]]) -> None:
    """Milliseconds from submission to DONE, beside one process of the C program after the other."""
    limits = [1000 / run['rate'] for run in results['C latency']]
    rows = [[f'system, {key}', *common.spread([run[key] for run in results['latency']])] for key in ('median', 'p90')]
    common.print_table(['one task at a time / ms', 'median of runs', 'min', 'max'],
                       [*rows, ['C agent, mean', *common.spread(limits)]])


def print_files(results: dict[str, list[Result]]) -> None:
    """Print the files per task."""
    keys = ('directories', 'files', 'trace rows')
    common.print_table(['per task', *keys], [[name, *(common.number(results[name][-1][key]) for key in keys)]
                                             for name in ('system', 'agent')])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--count', type=int, default=20_000, help='tasks of each run')
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--cores', type=int, default=2, help='cores of the pilot')
    parser.add_argument('--work', default=common.MEMORY, help='directory for sessions and sandboxes')
    parser.add_argument('--case', choices=PYTHON_CASES, help='run one case once, in this process, and print JSON')
    options = parser.parse_args()
    os.environ['RADICAL_PILOT_PROFILE'] = 'TRUE'
    if options.case:
        case: Callable[[str, int, int], Result] = globals()[options.case]
        print(json.dumps(case(options.work, options.count, options.cores)))
        return 0
    results = take_turns(options)
    print_rates(results, options.cores)
    print_cpu(results)
    print_latency(results)
    print_files(results)
    return 0


if __name__ == '__main__':
    sys.exit(main())
