"""How the sizes of partitions are described, and what is refused at once."""

from __future__ import annotations

from typing import Any

import pytest

from rp_api.description.partitions import partition_uid
from rp_api.description.pilot import PilotDescription
from rp_api.errors import DescriptionError


def described(**attributes: Any) -> PilotDescription:
    description = PilotDescription({'resource': 'local.exact', **attributes})
    description.verify()
    return description


@pytest.mark.parametrize(('given', 'kept'), [
    (2, 2), ('3', 3), (2.0, 2), (0, 0), ([], []), ({'cores': 2}, [{'cores': 2}]),
    (({'cores': '2', 'gpus': None}, {'cores': 1, 'nodes': 0}), [{'cores': 2}, {'cores': 1}])])
def test_forms(given: Any, kept: Any) -> None:
    assert described(cores=8, partitions=given).partitions == kept


def test_sizes_are_the_size_of_the_pilot() -> None:
    """If its description has no other."""
    assert described(partitions=[{'nodes': 2}, {'nodes': 1}]).nodes == 3
    pilot = described(partitions=[{'cores': 2, 'gpus': 1}, {'cores': 4}])
    assert (pilot.nodes, pilot.cores, pilot.gpus) == (0, 6, 1)
    assert described(nodes=4, partitions=[{'nodes': 2}]).nodes == 4


@pytest.mark.parametrize(('memory', 'sizes', 'total'), [
    (0, (100, 200), 300), (0, (100, 0), 0), (1000, (100, 200), 1000), (300, (100, 200), 300)])
def test_memory_is_that_of_the_partitions(memory: int, sizes: tuple[int, ...], total: int) -> None:
    """If the pilot has no other, and each partition names its own."""
    pilot = described(memory=memory, partitions=[{'cores': 1, 'memory': each} for each in sizes])
    assert (pilot.cores, pilot.memory) == (2, total)
    pilot.verify()
    assert pilot.memory == total


def test_of_whole_nodes_nobody_knows_the_cores_yet() -> None:
    assert described(nodes=1, partitions=[{'cores': 200, 'gpus': 4}]).nodes == 1


@pytest.mark.parametrize(('attributes', 'complaint'), [
    ({'partitions': 2}, 'nodes and cores are both 0'),
    ({'cores': 2, 'partitions': 3}, 'partitions is 3, but each needs a core, and cores is 2'),
    ({'cores': 2, 'partitions': -1}, 'must be a number of partitions, or a list of their sizes'),
    ({'cores': 2, 'partitions': True}, 'must be a number of partitions'),
    ({'cores': 2, 'partitions': 1.5}, 'must be a number of partitions'),
    ({'cores': 2, 'partitions': [1]}, 'must be a list of sizes, each of them a dict such as'),
    ({'cores': 2, 'partitions': [{'core': 1}]}, "not 'core': did you mean 'cores'"),
    ({'cores': 2, 'partitions': [{'cores': -1}]}, 'a size whose cores are an integer that is not negative'),
    ({'cores': 2, 'partitions': [{}]}, 'either nodes, or cores'),
    ({'cores': 2, 'gpus': 1, 'partitions': [{'gpus': 1}]}, 'either nodes, or cores'),
    ({'nodes': 2, 'partitions': [{'cores': 1, 'nodes': 1}]}, 'either nodes, or cores'),
    ({'nodes': 2, 'partitions': [{'nodes': 1, 'gpus': 1}]}, 'whole nodes have all their gpus'),
    ({'nodes': 2, 'partitions': [{'nodes': 2}, {'nodes': 1}]}, 'asks for 3 nodes, but nodes is 2'),
    ({'cores': 4, 'partitions': [{'cores': 2}, {'cores': 3}]}, 'asks for 5 cores, but cores is 4'),
    ({'cores': 4, 'partitions': [{'cores': 2, 'gpus': 1}]}, 'asks for 1 gpus, but gpus is 0'),
    ({'cores': 4, 'partitions': [{'nodes': 1}]}, 'the pilot is sized by cores'),
    ({'cores': 4, 'partitions': [{'cores': 1, 'memory': 'x'}]}, 'a size whose memory are a number of MB'),
    ({'cores': 4, 'partitions': [{'memory': 100}]}, 'either nodes, or cores'),
    ({'nodes': 2, 'partitions': [{'nodes': 1, 'memory': 100}]}, 'whole nodes have all their memory'),
    ({'cores': 4, 'memory': 299, 'partitions': [{'cores': 1, 'memory': 100}, {'cores': 1, 'memory': 200}]},
     'asks for 300 MB of memory, but memory is 299'),
    ({'partitions': [{'nodes': 1}, {'cores': 1}]}, 'so set nodes as well')])
def test_refused(attributes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DescriptionError, match=complaint):
        described(**attributes)


def test_uids() -> None:
    assert partition_uid('pilot.0000', 12) == 'pilot.0000.0012'
