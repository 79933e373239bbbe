"""Broadcast trees: which node passes an object on to which others, when one node has it and all need it."""

from __future__ import annotations

from dataclasses import dataclass

COPIES_PER_NODE = 2
"""Copies of an object that a node sends at most."""


@dataclass(frozen=True)
class BroadcastTree:
    """A tree over the nodes 0 to `nodes` - 1, in which each has at most `COPIES_PER_NODE` children.

    All nodes compute the same tree from the same two numbers. Its depth grows with the logarithm of `nodes`; each level
    delays an object by one piece, if the nodes pass pieces on as they arrive.
    """

    nodes: int
    root: int = 0

    def parent(self, node: int) -> int | None:
        """Return the node that sends the object to this one; None for the root."""
        place = (node - self.root) % self.nodes
        return self._at((place - 1) // COPIES_PER_NODE) if place else None

    def children(self, node: int) -> list[int]:
        """Return the nodes to which this one sends the object."""
        first = (node - self.root) % self.nodes * COPIES_PER_NODE + 1
        return [self._at(place) for place in range(first, min(first + COPIES_PER_NODE, self.nodes))]

    def _at(self, place: int) -> int:
        """Return the node at a place, counted from the root level by level."""
        return (place + self.root) % self.nodes
