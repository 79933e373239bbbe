"""Measure the MongoDB backend on nx-27017, beside the bulk calls of pymongo on the same server in the same run.

    python benchmarks/mongodb.py [--count N] [--runs N] [--work DIR]

Three steps, each timed for the backend and for the calls that it cannot do without:

- tasks in: a client inserts tasks in bulks of 1,000 until all are accepted; `insert_many`
- tasks to the agent: an agent comes and takes all of them; `find` by `_id`
- updates out: the agent reports a final state for each, until the client has got, and confirmed, all; `bulk_write` of
  one `UpdateOne` by `_id` for each

The backend and the bare calls take turns, each run with fresh collections. A ratio is the median of the ratios of the
turns: how many times slower the backend is. The documents of the bare calls have the fields and sizes of those of the
backend, and the same indexes.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common

BULK = 1000
STEPS = ('tasks in', 'tasks to the agent', 'updates out')
TIMEOUT = 600.0

Times = dict[str, float]


@contextmanager
def server(directory: Path) -> Iterator[tuple[str, int]]:
    """URL and process id of a server with an empty database, whose data are in that directory."""
    program = shutil.which('nx-27017', path=f'{Path(sys.executable).parent}:/usr/bin:/bin')
    if program is None:
        raise SystemExit('nx-27017 is not installed: pip install nx-27017 pymongo')
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port: int = probe.getsockname()[1]
    process = subprocess.Popen(
        [program, '--data-dir', str(directory / 'data'), '--host', '127.0.0.1', '-p', str(port),
         '--log-file', str(directory / 'log'), '--pid-file', str(directory / 'pid')],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(('127.0.0.1', port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise SystemExit('nx-27017 does not start') from None
                time.sleep(0.05)
        yield f'mongodb://127.0.0.1:{port}/benchmark', process.pid
    finally:
        process.kill()
        process.wait()


class Clock:
    """Measures steps: wall-clock time, and the CPU time of this process and of the server."""

    def __init__(self, server_pid: int) -> None:
        self._pid = server_pid
        self._times: Times = {}
        self._begin = self._now()

    def done(self, step: str) -> None:
        """A step ends here, and the next one begins."""
        now = self._now()
        self._times[step], self._times[f'{step}, CPU'] = (after - before for before, after
                                                          in zip(self._begin, now, strict=True))
        self._begin = self._now()

    @property
    def times(self) -> Times:
        """Seconds of each step, also with `, CPU`."""
        return self._times

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), time.process_time() + sum(common.cpu_ticks(self._pid)[:2])


def uids_of(count: int) -> list[str]:
    """Uids as a task manager gives them."""
    return [f'task.{number:06d}' for number in range(count)]


def bulks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Parts of a thousand."""
    for first in range(0, len(items), BULK):
        yield items[first:first + BULK]


def bare(url: str, clock: Clock, count: int, turn: int) -> Times:
    """Seconds that pymongo's calls take."""
    from pymongo import UpdateOne

    from rp_api.coordination.mongodb import documents
    from rp_api.coordination.mongodb.server import database_name, open_client
    from rp_api.wire import codec

    uids = uids_of(count)
    with open_client(url) as client:
        collection = client[database_name(client)][f'bare_{turn}']
        for index in documents.INDEXES:
            collection.create_index(index)
        clock.done('preparation')
        for part in bulks(uids):
            collection.insert_many([documents.task_document(uid, number, 'tmgr.0000', 'pilot.0000', 1,
                                                            codec.pack(description(uid)))
                                    for number, uid in enumerate(part)], ordered=False)
        clock.done('tasks in')
        for part in bulks(uids):
            found = list(collection.find({'_id': {'$in': list(part)}}, {'description': 1}))
            assert len([codec.unpack(one['description']) for one in found]) == len(part)
        clock.done('tasks to the agent')
        for part in bulks(uids):
            collection.bulk_write([UpdateOne({'_id': uid}, {'$set': {'state': 'TMGR_STAGING_OUTPUT_PENDING',
                                                                     'value': 13, 'info': codec.pack(info(uid))}})
                                   for uid in part], ordered=False)
        clock.done('updates out')
        collection.drop()
    return clock.times


def description(uid: str) -> dict[str, Any]:
    """Return the description of a task."""
    return {'executable': '/bin/true', 'arguments': [uid], 'ranks': 1, 'cores_per_rank': 1, 'name': uid}


def info(uid: str) -> dict[str, Any]:
    """Return the result of a task."""
    return {'exit_code': 0, 'stdout': uid.ljust(64), 'stderr': '', 'target_state': 'DONE'}


def _handler(**calls: Callable[..., object]) -> Any:
    """Return a handler of a connection that has these methods."""
    from rp_api.coordination import contract

    class Handler(contract.ClientHandler, contract.AgentHandler):   # type: ignore[misc]
        pass

    made = Handler()
    vars(made).update(calls)
    return made


class Parties:
    """A client and an agent of a session, each with a loop of its own."""

    def __init__(self, url: str, directory: Path, turn: int) -> None:
        from rp_api.coordination.connect import coordinator
        from rp_api.coordination.coordinator import Settings
        from rp_api.loop.event_loop import Loop

        self._coordinator = coordinator(f'session.{turn}', directory, Settings(dburl=url))
        self._coordinator.start()
        self._loops = [Loop(), Loop()]
        self._threads = [threading.Thread(target=loop.run) for loop in self._loops]
        self._client = self._coordinator.connect(self._loops[0])
        self._agent: Any = None
        for thread in self._threads:
            thread.start()

    def submit(self, uids: Sequence[str]) -> None:
        """Insert tasks, as fast as there is room; returns when they are accepted."""
        from rp_api.batch import Batch

        settled = threading.Event()
        waiting = bulks(uids)

        def send() -> None:
            while self._client.room:
                part = next(waiting, None)
                if part is None:
                    self._client.open(_handler())
                    self._client.when_settled(settled.set)
                    return
                self._client.insert_batch('pilot.0000', Batch.of([(uid, description(uid)) for uid in part]))

        self._client.open(_handler(on_room=send))
        self._loops[0].call_soon(self._client.insert_pilots, {'pilot.0000': {}})
        self._loops[0].call_soon(send)
        assert settled.wait(TIMEOUT)

    def take(self, count: int) -> None:
        """Have an agent take all tasks."""
        from rp_api.coordination.connect import agent_connection

        taken = threading.Event()
        got: list[str] = []

        def take(tasks: list[tuple[str, dict[str, Any]]]) -> None:
            got.extend(uid for uid, _ in tasks)
            if len(got) == count:
                taken.set()

        def connect() -> None:
            self._agent = agent_connection(self._loops[1], self._coordinator.agent_access, 'pilot.0000', 'agent_0')
            self._agent.open(_handler(on_tasks=take))

        self._loops[1].call_soon(connect)
        assert taken.wait(TIMEOUT)

    def report(self, uids: Sequence[str]) -> None:
        """Report the end of all tasks; returns when the client has got it and has confirmed that."""
        from rp_api.coordination.contract import Update

        done = threading.Event()
        heard = 0
        waiting = bulks(uids)

        def send() -> None:
            while self._agent.room and (part := next(waiting, None)) is not None:
                self._agent.update_tasks([Update(uid, 'TMGR_STAGING_OUTPUT_PENDING', info(uid)) for uid in part])

        def hear(updates: Sequence[Update]) -> None:
            nonlocal heard
            heard += len(updates)
            if heard == len(uids):   # what is asked for now comes after the confirmation
                self._loops[0].call_soon(self._client.note, 'end', None)
                self._loops[0].call_soon(self._client.when_settled, done.set)

        self._client.open(_handler(on_tasks=hear))
        self._agent.open(_handler(on_room=send))
        self._loops[1].call_soon(send)
        assert done.wait(TIMEOUT)

    def close(self) -> None:
        """End all."""
        for loop, connection in zip(self._loops, (self._client, self._agent), strict=True):
            loop.call_soon(connection.close)
            loop.call_soon(loop.stop)
        for thread, loop in zip(self._threads, self._loops, strict=True):
            thread.join()
            loop.close()
        self._coordinator.stop(1.0)


def backend(url: str, clock: Clock, directory: Path, count: int, turn: int) -> Times:
    """Seconds that the backend takes."""
    uids = uids_of(count)
    parties = Parties(url, directory, turn)
    clock.done('preparation')
    works: tuple[Callable[[], object], ...] = (lambda: parties.submit(uids), lambda: parties.take(count),
                                               lambda: parties.report(uids))
    for step, work in zip(STEPS, works, strict=True):
        work()
        clock.done(step)
    parties.close()
    return clock.times


def measure(count: int, runs: int, base: str) -> list[tuple[Times, Times, float]]:
    """For each turn: seconds of the bare calls, of the backend, and the share of the machine that others had."""
    results = []
    for turn in range(runs):
        with common.work_directory(base) as work, server(Path(work)) as (url, pid):
            common.progress(f'run {turn + 1} of {runs}')
            strangers = common.Strangers()
            results.append((bare(url, Clock(pid), count, turn), backend(url, Clock(pid), Path(work), count, turn),
                            strangers.share()))
    return results


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--count', type=int, default=20_000, help='tasks of each run')
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--work', default=common.MEMORY, help="directory for the server's data")
    options = parser.parse_args()
    results = measure(options.count, options.runs, options.work)
    bare_times, our_times = [result[0] for result in results], [result[1] for result in results]
    rows = []
    for step in STEPS:
        calls, ours = ([options.count / times[step] for times in each] for each in (bare_times, our_times))
        ratios, cpu = ([ours[key] / bare[key] for bare, ours in zip(bare_times, our_times, strict=True)]
                       for key in (step, f'{step}, CPU'))
        rows.append([step, common.number(statistics.median(calls)), common.number(statistics.median(ours)),
                     *common.spread(ratios), common.number(statistics.median(cpu))])
    common.print_table(['step', 'bare calls / tasks/s', 'backend / tasks/s', 'times slower', 'min', 'max',
                        'times more CPU'], rows)
    print(f'used by others: {statistics.median(result[2] for result in results):.0f} % (with the server)')
    return 0


if __name__ == '__main__':
    sys.exit(main())
