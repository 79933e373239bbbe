"""Serves a listening socket of a pilot in a process of its own: `python serving_raptor.py KIND`.

The kinds are agent, master, endpoint and objects. The first line of standard input is the configuration, the answer is
how to connect, by role; each further line is answered with the figures. The end of standard input is the end. `agent`
has masters of the names `master.N`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import zmq

from rp_agent.calls import Calls
from rp_agent.components.stage import Flow, Owner
from rp_agent.endpoint import Endpoint
from rp_agent.raptor.component import Raptor
from rp_agent.raptor.link import MasterLink
from rp_agent.task import AgentTask
from rp_api.constants import RAPTOR_MASTER
from rp_api.endpoint.visitor import endpoint_file
from rp_api.loop.event_loop import Loop
from rp_api.raptor_link import link_file
from rp_api.transport.access import Access
from rp_profiling.write.tracer import Tracer
from rp_raptor.master.connections import Peers
from rp_raptor.master.workers import Workers
from rp_raptor.objects.transfer import ObjectServer

MASTERS = 1000

Figures = Callable[[], dict[str, Any]]
Served = tuple[dict[str, Access], Figures, Callable[[], object]]
"""How to connect, what tells the figures, what closes it."""


class Agent(Flow, Owner):
    """What surrounds the agent's component, and a link to masters; all that gets in is kept."""

    def __init__(self, loop: Loop, directory: str, address: str | None) -> None:
        self.got: list[Any] = []
        self.environment: Mapping[str, str] = {}
        self.call_later = loop.call_later
        self.raptor = Raptor('raptor', Tracer(None, 'raptor'), self, self, self, {'nodes': 1})
        self.link = MasterLink(loop, link_file(directory), address, self.raptor.receive)
        self.send, self.refuse, self.forget = self.link.send, self.link.refuse, self.link.forget
        description = {'mode': RAPTOR_MASTER, 'executable': '/bin/master'}
        self.raptor.put([AgentTask(f'master.{number}', description, 'pilot', '') for number in range(MASTERS)])

    def make(self, uid: str, description: dict[str, Any]) -> AgentTask | None:
        self.got.append(uid)
        return None

    def put(self, tasks: list[AgentTask]) -> None:
        self.got += tasks

    conclude = leave = put

    def cancel(self, tasks: Sequence[AgentTask]) -> None:
        self.got += tasks

    def close(self) -> None:
        """The link is closed by others."""

    def remove_leftovers(self, master: str, address: str) -> None:
        self.got.append(master)

    def figures(self) -> dict[str, Any]:
        """Accepted is who is up, and all that has come of what masters said."""
        up = [master.uid for master in self.raptor._registry.masters.values() if master.up]
        return {'accepted': [up, len(self.got)], 'malformed': self.link._malformed.count,
                'strangers': self.link._listener.strangers, 'refused': self.link._point.gate.refused}


def agent(loop: Loop, directory: str, address: str | None) -> Served:
    """The agent's socket for masters."""
    made = Agent(loop, directory, address)
    return {'master': Access.load(link_file(directory))}, made.figures, made.link.close


class Audience:
    """Callbacks for workers that do nothing."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: None


def master(loop: Loop, directory: str, address: str | None) -> Served:
    """A master's socket for workers and applications; accepted is who is there, and the calls that wait."""
    peers = Peers(loop, 'master', address, directory, Audience(), Workers(lambda worker, state: None), 1)

    def figures() -> dict[str, Any]:
        return {'accepted': [[peer.uid for peer in peers._peers.values()], len(peers.router.workers),
                             peers.router.waiting, len(peers.router._functions)],
                'malformed': peers._malformed.count, 'strangers': peers._listener.strangers,
                'refused': peers._point.gate.refused}

    return ({'worker': peers.workers_access, 'application': peers.applications_access}, figures,
            lambda: peers.close(0))


def endpoint(loop: Loop, directory: str, address: str | None) -> Served:
    """An agent's socket for processes on its nodes; accepted are those who have a procedure or a call."""
    calls = Calls()
    calls.register('echo', lambda call: call.done(list(call.args)))
    made = Endpoint(loop, calls, endpoint_file(directory), address)

    def figures() -> dict[str, Any]:
        return {'accepted': [len(calls._procedures), len(calls._open)], 'malformed': made.dropped,
                'strangers': made._listener.strangers, 'refused': made._point.gate.refused}

    return {'visitor': Access.load(endpoint_file(directory))}, figures, made.close


def objects(loop: Loop, directory: str, address: str | None) -> Served:
    """A holder's socket for other hosts, which gives pieces of one object and keeps nothing of its peers."""
    path = Path(directory, 'object')
    path.write_bytes(bytes(1 << 20))
    context: zmq.Context[Any] = zmq.Context()
    made = ObjectServer(loop, context, address, directory, {bytes(16): str(path)}.get)

    def figures() -> dict[str, Any]:
        return {'accepted': [], 'malformed': made._malformed.count, 'strangers': made._listener.strangers,
                'refused': made._point.gate.refused}

    def close() -> None:
        made.close()
        context.term()

    return {'holder': made.access}, figures, close


def main() -> None:
    """Serve until standard input ends."""
    logging.basicConfig(stream=sys.stderr, format='%(levelname)s %(message)s')
    config = json.loads(os.read(0, 65536))
    loop = Loop()
    access, figures, close = {'agent': agent, 'master': master, 'endpoint': endpoint,
                              'objects': objects}[sys.argv[1]](
        loop, config['directory'], config['address'])

    def answer() -> None:
        if not os.read(0, 65536):
            loop.stop()
            return
        print(json.dumps(figures()), flush=True)

    loop.add_fd(0, answer)
    print(json.dumps({role: each.as_dict() for role, each in access.items()}), flush=True)
    loop.run()
    close()
    loop.close()


if __name__ == '__main__':
    main()
