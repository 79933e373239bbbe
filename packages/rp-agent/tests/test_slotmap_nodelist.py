"""An application that places with `pilot.nodelist` gets the same slots as the agent would give."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_api.errors import ResourceError
from rp_api.resources import NodeList, RankRequirements, Slot


class Find(NamedTuple):
    """A request."""

    ranks: int
    cores: int
    gpus: float
    mem: int
    per_node: int


FINDS = st.builds(
    Find, st.sampled_from([1, 1, 2, 3, 5, 8, 12]), st.sampled_from([1, 1, 1, 2, 3, 0]),
    st.sampled_from([0, 0, 1, 2, 0.5, 0.25, 1 / 3, 0.7]), st.sampled_from([0, 0, 2]),
    st.sampled_from([0, 0, 0, 1, 2, 3]))
RELEASES = st.integers(0, 99)


@st.composite
def node_lists(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Nodes of one size; some cores and GPUs must not be used."""
    def devices(number: int) -> list[dict[str, Any]]:
        return [{'index': index, 'occupation': draw(st.sampled_from([0.0] * 7 + [None]))} for index in range(number)]

    cores, gpus, whole = draw(st.sampled_from([1, 3, 4, 4, 66])), draw(st.integers(0, 3)), draw(st.booleans())
    mem = draw(st.sampled_from([0, 5, 9]))
    return [{'index': index, 'name': f'n{index}', 'mem': mem, 'lfs': 0,
             'cores': [{'index': core, 'occupation': 0.0} for core in range(cores)] if whole else devices(cores),
             'gpus': devices(gpus)} for index in range(draw(st.integers(1, 7)))]


def found(nodes: NodeList, find: Find) -> list[Slot] | None:
    """What the node list gives; None also if it can never be had."""
    whole = isinstance(find.gpus, int)
    needs = RankRequirements(n_cores=find.cores, n_gpus=find.gpus if whole else 1, mem=find.mem,
                             gpu_occupation=1.0 if whole else find.gpus)
    try:
        return nodes.find_slots(needs, find.ranks, find.per_node or None)
    except ResourceError:
        return None


@settings(max_examples=150, deadline=None)
@given(node_lists(), st.lists(FINDS | FINDS | RELEASES, max_size=25))
def test_node_list_and_slot_map_place_alike(records: list[dict[str, Any]], steps: list[Find | int]) -> None:
    slots, nodes = SlotMap(records), NodeList(nodes=records)
    held: list[tuple[Placement, list[Slot]]] = []
    for step in steps:
        if isinstance(step, Find):
            shape = Shape(step.ranks, step.cores, step.gpus, step.mem, 0, step.per_node)
            placement, listed = slots.place(shape), found(nodes, step)
            assert (None if placement is None else placement.slots()) == listed
            if placement is not None and listed is not None:
                held.append((placement, listed))
        elif held:
            placement, listed = held.pop(step % len(held))
            slots.release(placement)
            nodes.release_slots(listed)
    nodes.check()


@pytest.mark.parametrize('gpus', [0, 1, 0.5])
def test_full_machine(gpus: float) -> None:
    records = [{'index': index, 'name': f'n{index}', 'mem': 0, 'lfs': 0,
                'cores': [{'index': core, 'occupation': 0.0} for core in range(4)],
                'gpus': [{'index': gpu, 'occupation': 0.0} for gpu in range(2)]} for index in range(3)]
    slots, nodes = SlotMap(records), NodeList(nodes=records)
    find = Find(ranks=2, cores=1, gpus=gpus, mem=0, per_node=0)
    while (placement := slots.place(Shape(2, 1, gpus))) is not None:
        assert placement.slots() == found(nodes, find)
    assert found(nodes, find) is None
