"""Slots that the application has chosen itself: they are claimed from the nodes like those that the scheduler finds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from rp_api.constants import DOWN, FREE
from rp_api.errors import ResourceError
from rp_api.resources import Node, NodeList, Slot, SlotConflict


class GivenSlots:
    """Claims given slots from a node list, when all slots of a task are free at the same time."""

    def __init__(self, nodes: NodeList) -> None:
        self._nodes = nodes
        self._by_index: dict[int, Node] = {node['index']: node for node in nodes['nodes']}
        self._empty: dict[int, Node] = {}

    def read(self, slots: Sequence[Any], ranks: int) -> list[Slot]:
        """The slots, one for each rank; `ResourceError` or `DescriptionError` if they can never be had."""
        wanted = [slot if isinstance(slot, Slot) else Slot(slot) for slot in slots]
        if len(wanted) != ranks:
            raise ResourceError(f'{len(wanted)} slots are given for {ranks} ranks: each rank needs one')
        for slot in wanted:
            if slot['node_index'] not in self._by_index:
                known = ', '.join(map(str, list(self._by_index)[:3]))
                raise ResourceError(f'a slot is for node {slot["node_index"]}, which the pilot does not have: its '
                                    f'{len(self._by_index)} node(s) have the numbers {known} ...')
        self._try_on_empty(wanted)
        return wanted

    def claim(self, slots: Iterable[Slot]) -> list[dict[str, Any]] | None:
        """The slots as plain data, now occupied; None, and nothing occupied, if one of them is not free."""
        claimed: list[Slot] = []
        for slot in slots:
            try:
                self._by_index[slot['node_index']].allocate_slot(slot)
            except SlotConflict:
                self._nodes.release_slots(claimed)
                return None
            claimed.append(slot)
        return [slot.as_dict() | {'node_name': self._by_index[slot['node_index']]['name']} for slot in claimed]

    def _try_on_empty(self, slots: list[Slot]) -> None:
        """Occupy the slots on nodes where all is free, which shows whether they exist and can be had together."""
        claimed: list[Slot] = []
        try:
            for slot in slots:
                self._empty_node(slot['node_index']).allocate_slot(slot)
                claimed.append(slot)
        finally:
            for slot in claimed:
                self._empty_node(slot['node_index']).deallocate_slot(slot)

    def _empty_node(self, index: int) -> Node:
        if index not in self._empty:
            node = self._by_index[index]
            has = node.capacity()
            self._empty[index] = Node(index=index, name=node['name'], cores=_freed(node['cores']),
                                      gpus=_freed(node['gpus']), lfs=has['lfs'], mem=has['mem'])
        return self._empty[index]


def shape(slots: Iterable[Slot]) -> Hashable:
    """What makes two requests for given slots the same."""
    return tuple((slot['node_index'], _key(slot['cores']), _key(slot['gpus']), slot['lfs'], slot['mem'])
                 for slot in slots)


def _key(devices: Iterable[dict[str, Any]]) -> Hashable:
    return tuple((device['index'], device['occupation']) for device in devices)


def _freed(devices: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{'index': device['index'], 'occupation': DOWN if device['occupation'] is DOWN else FREE}
            for device in devices]
