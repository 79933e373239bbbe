"""Measure sub-agents on nodes: their start, a pilot of 8,000 of them, and tasks on four nodes of a Slurm.

    python benchmarks/sub_agents.py [--runs N] [--scale X] [start tree slurm]

`start` has all sub-agents on this machine. `tree` has none: one process stands for them, with a connection for each
relay and a stream for each sub-agent, and ends tasks as soon as they come; what is measured is the agent, which does
not see the difference. `slurm` needs pytest, root and the programs that `nox -s slurm` installs. Each run of each
figure is a fresh process; the script calls itself for that (`--figure`).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import common
import zmq

from rp_agent.components.layout import NodeHost
from rp_agent.components.stage import Owner
from rp_agent.nodes import node_launch, sub_agents
from rp_agent.nodes.node_launch import NodeLaunch
from rp_agent.nodes.remote import with_tasks
from rp_agent.pipeline.pipeline import Pipeline
from rp_agent.resource_manager.base import Allocation
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Helpers
from rp_api.loop.soon import Soon
from rp_api.transport.connection import PeerConnection, arrivals, refuse_loudly
from rp_api.transport.keys import KeyPair
from rp_api.tree.parent_socket import ParentSocket
from rp_api.tree.stream import VERSION, Envelope, Stream, decode, encode, pack_envelopes, unpack_envelopes

TESTS = Path(__file__).parents[1] / 'tests'
NODES = 64
TREES = (64, 8000)
CORES = 4

Figures = dict[str, float]


class Agent(Owner):
    """An agent's pipeline with a sub-agent on each of so many nodes."""

    def __init__(self, base: str, nodes: int) -> None:
        self.loop = Loop()
        self.helpers = Helpers(self.loop)
        self.ended = 0
        self.wanted = 0
        config = {'session': 'session', 'pilot': 'pilot.0000', 'resource': 'local.exact', 'client_sandbox': base,
                  'resource_sandbox': base, 'session_sandbox': base, 'pilot_sandbox': base, 'agent_uid': 'agent_0',
                  'registry_address': 'ipc:///nowhere', 'coordination': {}, 'cpus': (), 'gpu_ids': (),
                  'profile': False, 'agent': {'components': {'agent_executing': {'target': 'node'}}},
                  'platform': {'agent_spawner': 'POPEN', 'agent_config': 'default'}}
        self.base = base
        self.pipeline = Pipeline(config, self.loop, Allocation(('localhost',) * nodes, CORES, 0, 0, 0),
                                 self.helpers.run, self)

    def until_all_are_here(self, nodes: int) -> float:
        """Seconds until all sub-agents have come."""
        begin = time.monotonic()
        here = set()
        started = self.pipeline.sub_agents
        assert started
        root = started._root
        note = root._greeted

        def greeted(name: str) -> None:
            note(name)
            here.add(name)
            if len(here) == nodes:
                self.loop.call_soon(self.loop.stop)

        root._greeted = greeted
        started._trace = _lost
        self.loop.run()
        return time.monotonic() - begin

    def run(self, count: int) -> float:
        """Seconds that so many tasks take."""
        tasks = [AgentTask(uid, {'executable': '/bin/true', 'uid': uid}, 'pilot.0000', f'{self.base}/{uid}')
                 for uid in (f'task.{number:06d}' for number in range(self.ended, self.ended + count))]
        self.wanted = self.ended + count
        begin = time.monotonic()
        self.loop.call_soon(self.pipeline.put, tasks)
        self.loop.run()
        return time.monotonic() - begin

    def close(self) -> None:
        self.helpers.close(10)
        self.pipeline.close()
        self.loop.close()

    def broken(self, reason: str) -> None:
        sys.exit(reason)

    def left(self, tasks: Sequence[AgentTask]) -> None:
        bad = [task for task in tasks if task.target_state != states.DONE]
        assert not bad, (bad[0].uid, bad[0].exception, bad[0].exception_detail)
        self.ended += len(tasks)
        if self.ended == self.wanted:
            self.loop.stop()


def _lost(event: str, name: str) -> None:
    if event == 'sub_agent_stop':
        sys.exit(f'{name} has ended')


def start(work: Path, scale: float) -> Figures:
    """Seconds from the start of an agent's components to the last of its sub-agents, all of them on this machine."""
    nodes = max(2, round(NODES * scale))
    begin = time.monotonic()
    agent = Agent(str(work), nodes)
    agent.until_all_are_here(nodes)
    seconds = time.monotonic() - begin
    ticks = [common.cpu_ticks(pid) for pid in common.others()]
    agent.close()
    cpu = sum(user + system for user, system, *_ in ticks) / nodes
    return {f'start of {nodes} sub-agents / s': seconds, 'CPU time of each / s': cpu,
            'the same on all cores of this machine / s': cpu * nodes / (os.cpu_count() or 1)}


def tree(work: Path, scale: float) -> Figures:
    """Messages that the agent sends and gets for each task, its CPU time and memory, with few and with many nodes."""
    found: Figures = {}
    for nodes in (max(2, round(each * scale)) for each in TREES):
        found |= {f'{nodes} nodes: {what}': value for what, value in
                  json.loads(_again('--pretended', str(nodes), '--work', str(work))).items()}
    return found


def pretended(work: Path, nodes: int) -> Figures:
    """Figures of an agent whose sub-agents are pretended."""
    node_launch.launches = _pretend
    sub_agents.START_TIMEOUT = 600.0
    count = _counted()
    agent = Agent(str(work), nodes)
    came = agent.until_all_are_here(nodes)
    agent.run(nodes * CORES)
    before, sent = sum(common.cpu_ticks(os.getpid())[:2]), count['sent'] + count['got']
    tasks = 4 * nodes * CORES
    seconds = agent.run(tasks)
    cpu = sum(common.cpu_ticks(os.getpid())[:2]) - before
    messages = count['sent'] + count['got'] - sent
    agent.close()
    return {'all are here / s': came, 'messages per task': messages / tasks, 'tasks/s': tasks / seconds,
            'agent, CPU time per task / us': 1e6 * cpu / tasks,
            'agent, memory / MB': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _counted() -> dict[str, int]:
    """Counts the messages that fans send and get."""
    count = {'sent': 0, 'got': 0}
    send, arrived = ParentSocket._send, ParentSocket._arrived

    def counting_send(self: ParentSocket, child: bytes, packet: bytes) -> bool:
        count['sent'] += 1
        return send(self, child, packet)

    def counting_arrived(self: ParentSocket) -> None:
        receive = self._receive

        def one(child: bytes, envelopes: list[Envelope]) -> None:
            count['got'] += 1
            receive(child, envelopes)

        self._receive = one
        try:
            arrived(self)
        finally:
            self._receive = receive

    ParentSocket._send, ParentSocket._arrived = counting_send, counting_arrived   # type: ignore[method-assign]
    return count


def _pretend(platform: Any, allocation: Allocation, hosts: Sequence[NodeHost], sandbox: str) -> list[NodeLaunch]:
    """The process that stands for all sub-agents, as a launcher."""
    argv = (sys.executable, str(Path(__file__)), '--leaves', f'{sandbox}/agent_n.cfg')
    return [NodeLaunch('leaves', tuple(host.position for host in hosts), argv, dict(os.environ), (), ('RANK',))]


class PretendedRelay:
    """A relay, and all leaves that it speaks for: a connection, on which tasks come back at once."""

    def __init__(self, loop: Loop, shared: dict[str, Any], members: list[tuple[str, str]], context: zmq.Context[Any],
                 ended: Callable[[], None]) -> None:
        self._members = {name: (uid, Stream()) for name, uid in members}
        self._ended = ended
        self._outbox: list[Envelope] = []
        self._flush_soon = Soon(loop, self._flush)
        keys = KeyPair(shared['public'].encode(), shared['secret'].encode())
        self._connection = PeerConnection(loop, zmq.DEALER, shared['address'], keys, shared['server'].encode(), context,
                                      self._arrived, self._greet, refuse_loudly, ended)
        self._connection.socket.sndhwm = self._connection.socket.rcvhwm = 0
        self._connection.open()

    def _greet(self) -> None:
        first = next(iter(self._members))
        self._outbox.append((first, encode('relay', 'tcp://127.0.0.1:1')))
        self._outbox += [(name, encode('hello', VERSION, 0)) for name in self._members]
        self._flush_soon()

    def _arrived(self) -> None:
        for frames in arrivals(self._connection.socket):
            for name, message in unpack_envelopes(b''.join(frames)):
                if message:
                    self._handle(name, *decode(message))

    def _handle(self, name: str, kind: str, fields: list[Any]) -> None:
        if kind != 'items':
            return
        uid, stream = self._members[name]
        for item in stream.take(*fields) or ():
            if item['op'] == 'end':
                self._ended()
            elif item['op'] == 'put':
                done = [(task[0], {'state': states.AGENT_STAGING_OUTPUT_PENDING, 'exit_code': 0,
                                   'target_state': states.DONE}) for task in item['tasks']]
                self._outbox += [(name, each) for each in stream.put(with_tasks(uid, 'output', done))]
                self._flush_soon()

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, []
        for packet in pack_envelopes(outbox):
            self._connection.socket.send(packet, zmq.NOBLOCK)


def leaves(path: str) -> None:
    """Stand for all sub-agents of a configuration until the agent ends."""
    shared = json.loads(Path(path).read_text())['sub_agent']
    loop = Loop()
    members = [(name, uid) for name, ((_, uid),) in shared['hosted']]
    relays = shared['relays'] or len(members)
    context: zmq.Context[Any] = zmq.Context()
    context.max_sockets = 16384
    made = [PretendedRelay(loop, shared, members[number::relays], context, loop.stop) for number in range(relays)]
    assert made
    loop.run()
    os._exit(0)


def slurm(work: Path, scale: float) -> Figures:
    """Tasks per second on one node and on four nodes of a Slurm on this machine, and `srun` for each of them."""
    sys.path.insert(0, str(TESTS))
    from batch_pilots import Managers, platform
    from slurm_cluster import slurm_cluster

    import radical.pilot as rp

    count = max(32, round(4000 * scale))
    found: Figures = {}
    with slurm_cluster() as cluster:
        os.environ.update(cluster.environ | platform(work, 'slurm://localhost/', 'SLURM', launch_methods={
            'order': ['SRUN'], 'SRUN': {}}))
        for nodes in (1, 4):
            with rp.Session(cfg={'base': str(work)}) as session:
                managers = Managers(session)
                managers.active(cores=0, nodes=nodes)
                common.run_tasks(managers.tmgr, 64)
                begin = time.monotonic()
                common.run_tasks(managers.tmgr, count)
                found[f'{nodes} node(s): tasks/s'] = count / (time.monotonic() - begin)
        found['srun for each: tasks/s'] = _sruns(cluster, work, max(8, round(64 * scale)))
    one, four = found['1 node(s): tasks/s'], found['4 node(s): tasks/s']
    return found | {'four nodes, of one': four / one, 'of srun for each': four / found['srun for each: tasks/s']}


def _sruns(cluster: Any, work: Path, count: int) -> float:
    """Steps per second in a job of four nodes, four at a time."""
    script = work / 'sruns.sh'
    script.write_text('#!/bin/sh\nbegin=$(date +%s.%N)\n'
                      f'seq {count} | xargs -P 4 -I % srun --overlap -N1 -n1 --mem 0 /bin/true\n'
                      'echo $begin $(date +%s.%N)\n')
    cluster.run('sbatch', '-W', '-N4', '--exclusive', '-o', str(work / 'sruns.out'), str(script))
    begin, end = map(float, (work / 'sruns.out').read_text().split())
    return count / (end - begin)


FIGURES: dict[str, Callable[[Path, float], Figures]] = {'start': start, 'tree': tree, 'slurm': slurm}


def _again(*arguments: str) -> str:
    """Run this script in a new process; return the JSON that it prints."""
    return subprocess.run([sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('figures', nargs='*', default=list(FIGURES), help=', '.join(FIGURES))
    parser.add_argument('--runs', type=int, default=3)
    parser.add_argument('--scale', type=float, default=1.0, help='part of the nodes and tasks')
    for hidden in ('--figure', '--pretended', '--leaves', '--work'):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.leaves:
        leaves(options.leaves)
        return
    with tempfile.TemporaryDirectory(prefix='rp-benchmark.', dir='/dev/shm') as directory:
        work = Path(directory)
        if options.pretended:
            print(json.dumps(pretended(work, int(options.pretended))))
            return
        if options.figure:
            print(json.dumps(FIGURES[options.figure](work, options.scale)))
            return
    strangers = common.Strangers()
    rows = []
    for name in options.figures:
        runs = [json.loads(_again('--figure', name, '--scale', str(options.scale))) for _ in range(options.runs)]
        rows += [[figure, *common.spread([run[figure] for run in runs])] for figure in runs[0]]
    common.print_table(['', 'median', 'min', 'max'], rows)
    print(f'used by others: {strangers.share():.0f} %')


if __name__ == '__main__':
    main()
