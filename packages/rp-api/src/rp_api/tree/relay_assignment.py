"""The assignment of nodes to the relays of a tree: evenly, and to the root while there is no place."""

from __future__ import annotations


class RelayAssignment:
    """The connected relays, of the expected number, and their children."""

    def __init__(self, nodes: int, relays: int) -> None:
        self._others = max(0, nodes - relays)
        self._relays = relays
        self._addresses: dict[str, str] = {}
        self._children: dict[str, set[str]] = {}
        self._last: dict[str, str] = {}
        self._gone: set[str] = set()
        self._waiting: dict[str, None] = {}

    def __contains__(self, name: str) -> bool:
        """Return whether this is a relay."""
        return name in self._addresses

    def add(self, relay: str, address: str) -> None:
        """Add a relay."""
        self._waiting.pop(relay, None)
        self._gone.discard(relay)
        self._addresses[relay] = address
        self._children.setdefault(relay, set())

    def find(self, name: str) -> str:
        """Return the address that a node must connect to; empty to stay with the root, at least for now.

        A node that returns from a relay is not sent there again, because the relay may have died. For such nodes each
        relay has an additional place, because all others may be taken.
        """
        if not self._relays:
            return ''
        self.remove(name)
        there = [relay for relay in self._children if relay != self._last.get(name)]
        relay = min(there, key=lambda each: len(self._children[each]), default=None)
        if relay is None or len(self._children[relay]) >= self._capacity() + (name in self._last):
            self._waiting[name] = None
            return ''
        self._children[relay].add(name)
        self._last[name] = relay
        return self._addresses[relay]

    def settle(self) -> dict[str, str]:
        """Return the addresses of relays for waiting nodes, as far as there are places now."""
        if not self._waiting:
            return {}
        found = {name: self.find(name) for name in list(self._waiting)[:self._capacity() * len(self._children)]}
        return {name: parent for name, parent in found.items() if parent}

    def remove(self, name: str) -> None:
        """Remove a node or a relay."""
        self._waiting.pop(name, None)
        if self._addresses.pop(name, None) is not None:
            del self._children[name]
            self._gone.add(name)
        for children in self._children.values():
            children.discard(name)

    def _capacity(self) -> int:
        return -(-self._others // max(1, self._relays - len(self._gone)))
