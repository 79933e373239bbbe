"""Which nodes the instances of a launcher get."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_agent.instance_nodes import MOST_NODES, divide
from rp_api.errors import PlatformError


@pytest.mark.parametrize(('nodes', 'options', 'partitions', 'sizes'), [
    (4, {}, 1, [4]),
    (4, {'dvm_count': 3}, 1, [2, 1, 1]),
    (4, {'instance_count': 4}, 1, [1, 1, 1, 1]),
    (5, {'nodes_per_dvm': 2}, 1, [2, 2, 1]),
    (4, {'nodes_per_instance': 8}, 1, [4]),
    (4, {}, 2, [2, 2]),
    (4, {'dvm_count': 1}, 2, [4]),
    (1, {}, 8, [1]),
    (4096, {}, 1, [256] * 16),
    (257, {}, 1, [129, 128]),
])
def test_sizes(nodes: int, options: dict[str, Any], partitions: int, sizes: list[int]) -> None:
    assert [len(part) for part in divide('PRTE', nodes, options, partitions)] == sizes


@given(st.integers(1, 3000), st.integers(1, 40))
def test_every_node_belongs_to_one_instance(nodes: int, count: int) -> None:
    parts = divide('PRTE', nodes, {'dvm_count': min(count, nodes)})
    assert [position for part in parts for position in part] == list(range(nodes))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(len(part) <= MOST_NODES for part in divide('PRTE', nodes, {}))


@pytest.mark.parametrize(('options', 'sentence'), [
    ({'dvm_count': 0}, 'dvm_count is 0, allowed: a whole number, at least 1'),
    ({'nodes_per_dvm': '2'}, "nodes_per_dvm is '2', allowed"),
    ({'dvm_count': True}, 'dvm_count is True, allowed'),
    ({'dvm_count': 2, 'nodes_per_dvm': 2}, 'set one of them'),
    ({'dvm_count': 5}, '5 instances cannot share 4 node'),
])
def test_what_makes_no_sense_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlatformError, match=sentence):
        divide('PRTE', 4, options)
