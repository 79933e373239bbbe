"""Broadcast trees: every node receives an object once, and no node or link carries more than its share."""

from __future__ import annotations

from collections import Counter
from math import log2

import pytest

from rp_raptor.objects.tree import COPIES_PER_NODE, BroadcastTree

SIZE = 500 << 20


def links(tree: BroadcastTree) -> list[tuple[int, int]]:
    """The links of a tree, in the order in which a transfer reaches them."""
    found, reached = [], [tree.root]
    for node in reached:
        for child in tree.children(node):
            found.append((node, child))
            reached.append(child)
    return found


def depth(tree: BroadcastTree, node: int) -> int:
    above = tree.parent(node)
    return 0 if above is None else 1 + depth(tree, above)


@pytest.mark.parametrize('nodes', [1, 2, 3, 4, 5, 7, 8, 33, 100, 4097])
@pytest.mark.parametrize('first', [0.0, 0.4, 1.0])
def test_each_node_receives_an_object_once(nodes: int, first: float) -> None:
    root = int(first * (nodes - 1))
    tree = BroadcastTree(nodes, root)
    carried, received, sent = Counter[tuple[int, int]](), Counter[int](), Counter[int]()   # bytes by link and by node
    for sender, receiver in links(tree):
        carried[sender, receiver] += SIZE
        sent[sender] += SIZE
        received[receiver] += SIZE
    assert received == {node: SIZE for node in range(nodes) if node != root}
    assert set(carried.values()) <= {SIZE}
    assert carried.total() == (nodes - 1) * SIZE
    assert all(size <= COPIES_PER_NODE * SIZE for size in sent.values())


@pytest.mark.parametrize('nodes', [1, 2, 4, 5, 100, 4097, 8008])
def test_the_depth_grows_with_the_logarithm(nodes: int) -> None:
    tree = BroadcastTree(nodes, nodes // 3)
    assert max(depth(tree, node) for node in range(nodes)) == int(log2(nodes))


@pytest.mark.parametrize(('nodes', 'root'), [(1, 0), (4, 0), (4, 3), (100, 42)])
def test_children_and_parents_agree(nodes: int, root: int) -> None:
    tree = BroadcastTree(nodes, root)
    assert tree.parent(root) is None
    assert all(tree.parent(child) == node for node in range(nodes) for child in tree.children(node))


def test_four_nodes() -> None:
    tree = BroadcastTree(4)
    assert [tree.children(node) for node in range(4)] == [[1, 2], [3], [], []]
