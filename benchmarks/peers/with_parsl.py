"""Processes through Parsl: its executor HTEX with two workers.

Variant `bash` is Parsl's own way to run programs, `bash_app`; the others are Python functions. Workers fetch tasks
ahead, which is faster than the default.
"""

import os
import sys
from concurrent.futures import Future
from typing import Any, cast

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
from process_task import FUNCTIONS, measure


@parsl.bash_app  # type: ignore[untyped-decorator]
def bash(stdout: str, stderr: str) -> str:
    return '/bin/true'


def submit(directory: str, number: int, *before: Future[Any]) -> Future[Any]:
    """Start one task of the variant that is measured."""
    if sys.argv[1] == 'bash':
        return cast('Future[Any]', bash(stdout=f'{directory}/{number}.out', stderr=f'{directory}/{number}.err'))
    return cast('Future[Any]', APP(directory, number, *before))


def run(directory: str, count: int) -> list[tuple[int, bytes, bytes]]:
    futures: list[Any] = []
    for number in range(count):
        before = futures[-1:] if sys.argv[1] == 'chain' else []
        futures.append(submit(directory, number, *before))
    results = [future.result() for future in futures]
    return [(code, b'', b'') for code in results] if sys.argv[1] == 'bash' else results


def main() -> None:
    executor = HighThroughputExecutor(
        label='htex', address='127.0.0.1', loopback_address='127.0.0.1', max_workers_per_node=2, cores_per_worker=1,
        prefetch_capacity=10, encrypted=False,
        provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1))
    with parsl.load(Config(executors=[executor], run_dir=os.path.abspath('runinfo'), strategy='none',
                           initialize_logging=False, usage_tracking=0)):
        measure(run)


if __name__ == '__main__':
    APP = parsl.python_app(FUNCTIONS.get(sys.argv[1], FUNCTIONS['files']))
    main()
