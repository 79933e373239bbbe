"""The copies of directories on all nodes of a pilot, as Agent_0 sees them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from rp_agent.node_copies.distributor import Distributor, Nodes, Outcome
from rp_agent.node_copies.receiver import Item, Receiver
from rp_api.errors import sentence
from rp_api.loop.event_loop import Loop
from rp_api.loop.offload import Offload
from rp_api.loop.process_handle import ProcessHandle
from rp_api.system.host import python_program

HERE = 'agent_0'
"""The name of Agent_0's host among the nodes, if tasks run on it."""

Done = Callable[[Outcome], object]
Failed = Callable[[str, str], object]
"""Called with the reason of a failure and with its details."""


class Bridge(Nodes, Protocol):
    """The sub-agents on nodes (see `rp_agent.nodes.sub_agents`)."""

    copies: NodeCopies | None

    def on_nodes(self) -> dict[str, str]:
        """Return the names of those that start tasks, with the names of their nodes."""


class _Packing(NamedTuple):
    process: subprocess.Popen[bytes]
    handle: ProcessHandle


class NodeCopies:
    """The copies on the nodes of a pilot: with sub-agents, which `bridge` leads to, and `here` if tasks run here."""

    def __init__(self, config: Mapping[str, Any], loop: Loop, offload: Offload, bridge: Bridge | None,
                 here: bool) -> None:
        self._config = config
        self._loop = loop
        self._offload = offload
        self._bridge = bridge
        self._receiver = Receiver(config, loop, partial(self.receive, HERE)) if here else None
        self._distributors: dict[str, Distributor] = {}
        self._packing: list[_Packing] = []
        if bridge is not None:
            bridge.copies = self

    def provide(self, name: str, directory: str, archive: str, done: Done, failed: Failed) -> None:
        """Copy a directory to all nodes.

        Args:
            name: The name of the copy on nodes; the same name stands for the same content.
            directory: The directory.
            archive: The path of its archive, which is packed if it does not exist.
            done: Called with the nodes that have a copy and those that have none.
            failed: Called if there is no archive.
        """
        log = f'{archive}.{os.getpid()}.log'
        with open(log, 'wb') as file:
            process = subprocess.Popen([*python_program('rp_agent.node_copies.packer'), directory, archive,
                                        str(os.getpid())], stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        packing = _Packing(process, ProcessHandle.of_child(process.pid))
        self._packing.append(packing)
        packing.handle.watch(self._loop, lambda: self._packed(packing, log, name, archive, done, failed))

    def receive(self, node: str, item: Item) -> None:
        """Handle a report of a node."""
        distributor = self._distributors.get(item['copy'])
        if distributor is not None:
            distributor.report(node, item['event'], item['value'])

    def lost(self, node: str) -> None:
        """Handle the end of a node."""
        for distributor in list(self._distributors.values()):
            distributor.lost(node)

    def close(self) -> None:
        """End all work, and remove the copies on this host; sub-agents remove theirs."""
        for packing in self._packing:
            packing.process.kill()
            packing.process.wait()
            packing.handle.close()
        self._packing.clear()
        for distributor in self._distributors.values():
            distributor.close()
        self._distributors.clear()
        if self._receiver is not None:
            self._receiver.close()

    def _packed(self, packing: _Packing, log: str, name: str, archive: str, done: Done, failed: Failed) -> None:
        self._packing.remove(packing)
        packing.handle.close()
        code = packing.process.wait()
        with open(log, encoding='utf-8', errors='replace') as file:
            said = file.read().strip()
        os.unlink(log)
        if code:
            failed(said.rpartition('\n')[2] or f'the archive {archive} could not be packed: exit code {code}', said)
        else:
            try:
                self._distribute(name, archive, done)
            except OSError as error:
                failed(f'the archive {archive} cannot be read: {sentence(error)}', '')

    def _distribute(self, name: str, archive: str, done: Done) -> None:
        def ended(outcome: Outcome) -> None:
            del self._distributors[name]
            done(Outcome(outcome.paths, {node: f'{nodes[node]}: {said}' for node, said in outcome.failures.items()}))

        nodes = self._bridge.on_nodes() if self._bridge else {}
        if self._receiver is not None:
            nodes[HERE] = os.uname().nodename
        made = Distributor(name, archive, self._loop, self._offload, self, ended)
        self._distributors[name] = made
        made.start(nodes)

    def put(self, node: str, item: Item) -> None:
        """Send an item to a node."""
        if node == HERE:
            assert self._receiver is not None
            self._receiver.receive(item)
        elif self._bridge is not None:
            self._bridge.put(node, item)

    def spread(self, nodes: list[str], item: Item) -> None:
        """Send an item to several nodes at once, without a guarantee."""
        elsewhere = [node for node in nodes if node != HERE]
        if elsewhere and self._bridge is not None:
            self._bridge.spread(elsewhere, item)
        if len(elsewhere) < len(nodes):
            self.put(HERE, item)
