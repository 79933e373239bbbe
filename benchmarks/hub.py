"""Measure what the hub of a session does: tasks in, final updates out, the way of one task; and print a table.

    python benchmarks/hub.py [--tasks N] [--bulk N] [--runs N] [--work DIR]

A client hands all tasks to the hub, and has its word that they are durable (*in*). Then an agent gets them
(*delivered*) and reports the end of each, which the hub makes durable and the client gets (*out*). Then one task at a
time goes from the client to the agent (*latency*). Client, hub and agent are processes. Next to that stands what SQLite
itself does with the same table in bulks of the same size, each of them committed (*SQLite*).
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import MEMORY, Strangers, cpu_ticks, number, print_table, progress, spread, work_directory

from rp_api import states
from rp_api.batch import Batch
from rp_api.coordination.connections.embedded import HubAgentConnection
from rp_api.coordination.contract import AgentHandler, ClientHandler, NewTask, Update
from rp_api.coordination.coordinator import Settings
from rp_api.coordination.hub import task_table
from rp_api.coordination.hub.store import Store
from rp_api.coordination.hub_process import HubProcess
from rp_api.loop.event_loop import Loop
from rp_api.transport.access import Access

PILOT = 'pilot.0000'
DESCRIPTION = {'executable': '/bin/true', 'ranks': 1, 'cores_per_rank': 1, 'environment': {'A': 'b'}}
RESULT = {'exit_code': 0, 'stdout': '', 'stderr': '', 'target_state': states.DONE}
LEFT = states.TMGR_STAGING_OUTPUT_PENDING
TRIPS = 500


def uid_of(task: int) -> str:
    return f'task.{task:06d}'


# the agent, in a process of its own


def agent_main() -> None:
    """Get tasks; tell the end of each when told to."""
    orders = json.loads(sys.stdin.readline())
    loop = Loop()
    connection = HubAgentConnection(loop, Access(**orders['address']), PILOT)
    uids: list[str] = []
    trips: list[float] = []
    waiting: list[list[Update]] = []

    def tell(**what: Any) -> None:
        print(json.dumps(what), flush=True)

    class Handler(AgentHandler):
        def on_tasks(self, tasks: list[NewTask]) -> None:
            now = time.monotonic()
            uids.extend(uid for uid, _ in tasks)
            uid, description = tasks[0]
            if 'sent' in description:
                trips.append(now - description['sent'])
                connection.update_tasks([Update(uid, LEFT, RESULT)])
            elif len(uids) == orders['tasks']:
                tell(delivered=now)

        def on_room(self) -> None:
            while waiting and connection.room:
                connection.update_tasks(waiting.pop())

    handler = Handler()

    def told() -> None:
        word = sys.stdin.readline().strip()
        if word == 'report':
            for first in range(0, len(uids), orders['bulk']):
                bulk = uids[first:first + orders['bulk']]
                waiting.insert(0, [Update(uid, LEFT, RESULT | {'stdout': uid}) for uid in bulk])
            handler.on_room()
        else:
            tell(trips=trips)
            loop.stop()

    connection.open(handler)
    loop.add_fd(sys.stdin.fileno(), told)
    tell(ready=time.monotonic())
    loop.run()
    connection.close()
    loop.close()


class Agent:
    """The agent's process."""

    def __init__(self, address: Access, tasks: int, bulk: int) -> None:
        self._process = subprocess.Popen([sys.executable, __file__, '--agent'], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        self.tell(json.dumps({'address': address.as_dict(), 'tasks': tasks, 'bulk': bulk}))
        self.hear('ready')

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + '\n')
        self._process.stdin.flush()

    def hear(self, what: str) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())[what]

    def end(self) -> list[float]:
        self.tell('end')
        trips: list[float] = self.hear('trips')
        self._process.communicate()
        return trips


# the client


class Client(ClientHandler):
    """The client's connection, with calls that wait."""

    def __init__(self, hub: HubProcess) -> None:
        self.loop = Loop()
        self.connection = hub.connect(self.loop)
        self.connection.open(self)
        self.ended = 0
        self._reached: Callable[[], object] = lambda: False

    def on_tasks(self, updates: list[Update]) -> None:
        self.ended += len(updates)
        self.on_room()

    def on_room(self) -> None:
        if self._reached():
            self._reached = lambda: False
            self.loop.call_soon(self._pause)

    def _pause(self) -> None:
        self.loop.stop()

    def until(self, reached: Callable[[], object]) -> None:
        """Run the loop until this is so."""
        self._reached = reached
        self.loop.call_soon(self.on_room)
        self.loop.run()

    def until_ended(self, count: int) -> None:
        """Run the loop until that many tasks have ended."""
        self.until(lambda: self.ended == count)

    def submit(self, bulks: Iterator[list[tuple[str, dict[str, Any]]]]) -> None:
        """Hand over tasks until the hub has all of them."""
        left = True

        def send() -> bool:
            nonlocal left
            while left and self.connection.room:
                bulk = next(bulks, None)
                if bulk is None:
                    left = False
                else:
                    self.connection.insert_batch(PILOT, Batch.of(bulk), 'tmgr.0000')
            return not left and self.connection.settled

        self.until(send)


def bulks(count: int, size: int) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    for first in range(0, count, size):
        yield [(uid_of(task), DESCRIPTION | {'arguments': [str(task)]})
               for task in range(first, min(first + size, count))]


@contextmanager
def running_hub(directory: str) -> Iterator[HubProcess]:
    hub = HubProcess('benchmark', Path(directory), Settings())
    hub.start()
    try:
        yield hub
    finally:
        hub.stop(5.0)


def through_hub(directory: str, count: int, size: int) -> dict[str, Any]:
    """Tasks per second and CPU time for each phase, and the latencies."""
    with running_hub(directory) as hub:
        client = Client(hub)
        client.connection.insert_pilots({PILOT: {}})
        client.until(lambda: client.connection.settled)
        prepared = list(bulks(count, size))
        cpu = Times(hub=hub.pid, client=os.getpid())
        begin = time.monotonic()
        client.submit(iter(prepared))
        result: dict[str, Any] = {'in': count / (time.monotonic() - begin), 'cpu in': cpu.per_task(count)}
        begin = time.monotonic()
        agent = Agent(hub.agent_address, count, size)
        ready = time.monotonic()
        result['delivered'] = count / (agent.hear('delivered') - max(begin, ready - 0.01))
        cpu = Times(hub=hub.pid, client=os.getpid(), agent=agent.pid)
        begin = time.monotonic()
        agent.tell('report')
        client.until_ended(count)
        result |= {'out': count / (time.monotonic() - begin), 'cpu out': cpu.per_task(count)}
        for trip in range(TRIPS):
            description = DESCRIPTION | {'sent': time.monotonic()}
            client.connection.insert_batch(PILOT, Batch.of([(f'trip.{trip}', description)]))
            client.until_ended(count + trip + 1)
        trips = agent.end()
        result['latency'] = statistics.median(trips) * 1000
        client.connection.close()
        client.loop.close()
    return result


class Times:
    """CPU times of processes from now on."""

    def __init__(self, **pids: int) -> None:
        self._pids = pids
        self._before = {name: sum(cpu_ticks(pid)[:2]) for name, pid in pids.items()}

    def per_task(self, count: int) -> dict[str, float]:
        """Microseconds by process."""
        return {name: (sum(cpu_ticks(pid)[:2]) - self._before[name]) / count * 1e6 for name, pid in self._pids.items()}


# SQLite alone


def with_sqlite(directory: str, count: int, size: int) -> dict[str, float]:
    """Rows per second that the hub's own statements write in the hub's own table, each bulk committed."""
    path = os.path.join(directory, 'bare.db')
    Store(path).close()
    database = sqlite3.connect(path, isolation_level=None)
    database.execute('PRAGMA synchronous = NORMAL')
    description, info = bytearray(60), bytearray(60)

    def write(statement: str, row: Callable[[int], tuple[Any, ...]]) -> float:
        rows = [[row(task) for task in range(first, first + size)] for first in range(1, count + 1, size)]
        begin = time.monotonic()
        for bulk in rows:
            database.execute('BEGIN')
            database.executemany(statement, bulk)
            database.execute('COMMIT')
        return count / (time.monotonic() - begin)

    into = write(task_table.INSERT_BOUND, lambda task: (task, uid_of(task), 'tmgr.0000', PILOT, 1, description))
    out = write(task_table.UPDATE_BY_AGENT[LEFT], lambda task: (info, uid_of(task), PILOT, count + task))
    database.close()
    return {'in': into, 'out': out}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--tasks', type=int, default=200_000)
    parser.add_argument('--bulk', type=int, default=1000)
    parser.add_argument('--runs', type=int, default=5)
    parser.add_argument('--work', default=MEMORY)
    parser.add_argument('--agent', action='store_true', help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.agent:
        agent_main()
        return
    runs, strangers = [], Strangers()
    for run in range(arguments.runs):
        progress(f'run {run + 1} of {arguments.runs}')
        with work_directory(arguments.work) as work:
            bare = with_sqlite(work, arguments.tasks, arguments.bulk)
            runs.append((bare, through_hub(work, arguments.tasks, arguments.bulk)))
    busy = strangers.share()
    rows = []
    for phase in ('in', 'delivered', 'out'):
        row = [f'{phase}, 1/s', *spread([hub[phase] for _, hub in runs])]
        if phase in runs[0][0]:
            row += [number(statistics.median(bare[phase] for bare, _ in runs)),
                    f'{statistics.median(hub[phase] / bare[phase] for bare, hub in runs):.2f}',
                    ', '.join(f'{name} {statistics.median(hub[f"cpu {phase}"][name] for _, hub in runs):.1f}'
                              for name in runs[0][1][f'cpu {phase}'])]
        rows.append([*row, *[''] * (7 - len(row))])
    rows.append(['latency, ms', *spread([hub['latency'] for _, hub in runs]), '', '', ''])
    print(f'used by others: {busy:.0f} %')
    print_table(['figure', 'median', 'least', 'most', 'SQLite', 'of SQLite', 'CPU, us per task'], rows)


if __name__ == '__main__':
    main()
