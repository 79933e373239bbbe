"""The slot map against a plain model: every placement is compared, and all invariants are verified after every step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from slot_oracle import Domains, Oracle, Part, Record

from rp_agent.scheduler.slotcheck import check
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_api.errors import ResourceError
from rp_api.resources.pool import to_units

OCCUPATIONS = st.sampled_from([0.0, 0.0, 0.0, 0.0, 0.0, None, 0.5, 1.0])
CORES = st.sampled_from([range(4), range(4), range(6), range(1), range(0), range(8), range(60, 68),
                         (0, 3, 63, 64, 65, 130)])
GPUS = st.sampled_from([range(2), range(2), range(0), range(3), (1, 5), range(9)])
SHARES = st.sampled_from([0.1, 0.25, 0.3, 1 / 3, 0.5, 0.75])
DOMAINS = st.sampled_from([[], [], [((0, 1), (0,)), ((2, 3), (1,))], [((0, 1, 2), ()), ((3, 64, 65), (0, 1))]])
SHAPES = st.builds(
    Shape, ranks=st.sampled_from([1, 1, 1, 2, 3, 4, 6, 9, 14]), cores=st.sampled_from([1, 1, 1, 2, 2, 3, 4, 0]),
    gpus=st.just(0) | st.integers(0, 2) | SHARES, mem=st.sampled_from([0, 0, 0, 1, 4]),
    lfs=st.sampled_from([0, 0, 0, 3]), ranks_per_node=st.sampled_from([0, 0, 0, 1, 2, 3]))


@st.composite
def nodes(draw: st.DrawFn) -> list[Record]:
    """Nodes that are all alike, or differ."""
    def devices(indices: Iterable[int], plain: bool) -> list[dict[str, Any]]:
        return [{'index': each, 'occupation': 0.0 if plain else draw(OCCUPATIONS)} for each in indices]

    def size() -> tuple[Sequence[int], Sequence[int], int, int]:
        return draw(CORES), draw(GPUS), draw(st.integers(0, 9)), draw(st.integers(0, 9))

    count, common = draw(st.integers(1, 9)), size() if draw(st.booleans()) else None
    records = []
    for index in draw(st.permutations(range(count))):
        cores, gpus, mem, lfs = common or size()
        plain = draw(st.booleans())
        records.append({'index': index, 'name': f'n{index}', 'cores': devices(cores, plain),
                        'gpus': devices(gpus, plain), 'mem': mem, 'lfs': lfs})
    return records


class SlotMapMachine(RuleBasedStateMachine):
    """Drives the slot map and the oracle alike."""

    @initialize(records=nodes(), domains=DOMAINS)
    def start(self, records: list[Record], domains: Domains) -> None:
        self.records = records
        self.slots, self.oracle = SlotMap(records, domains), Oracle(records, domains)
        self.held: list[tuple[Placement, list[Part]]] = []

    def agree(self, placement: Placement | None, parts: list[Part] | None, ranks: int) -> None:
        """The placement is what the oracle says."""
        assert (placement is None) == (parts is None)
        if placement is not None and parts is not None:
            assert placement.slots() == self.oracle.slots(parts, ranks)
            assert placement.nodes() == list(dict.fromkeys(part[0] for part in parts))
            self.held.append((placement, parts))

    def position(self, number: int) -> int:
        return number % len(self.records)

    @rule(shape=SHAPES, avoid=st.lists(st.integers(0, 8), max_size=2))
    def place(self, shape: Shape, avoid: list[int]) -> None:
        avoid = [self.position(each) for each in avoid]
        self.agree(self.slots.place(shape, avoid), self.oracle.place(shape, avoid), shape.ranks)

    @rule(shape=SHAPES, count=st.integers(0, 5))
    def place_many(self, shape: Shape, count: int) -> None:
        placements = self.slots.place_many(shape, count)
        assert len(placements) <= count
        for placement in placements:
            self.agree(placement, self.oracle.place(shape), shape.ranks)
        if len(placements) < count:
            assert self.oracle.place(shape) is None

    @rule(shape=SHAPES, positions=st.lists(st.integers(0, 8), max_size=5), whole=st.booleans())
    def place_on(self, shape: Shape, positions: list[int], whole: bool) -> None:
        positions = [self.position(each) for each in positions]
        self.agree(self.slots.place_on(shape, positions, whole), self.oracle.place_on(shape, positions, whole),
                   shape.ranks)

    @rule(shape=SHAPES, first=st.integers(0, 9), length=st.integers(0, 9))
    def place_in(self, shape: Shape, first: int, length: int) -> None:
        first = min(first, len(self.records))
        end = min(first + length, len(self.records))
        seen = [position for position in range(first, end) if not self.oracle.nodes[position].hidden]
        self.agree(self.slots.place_in(shape, first, end), self.oracle.place_on(shape, seen), shape.ranks)

    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        parts, slots = [], []
        for _ in range(data.draw(st.integers(1, 3))):
            position = self.position(data.draw(st.integers(0, 8)))
            record = self.records[position]
            cores = data.draw(st.lists(st.sampled_from(record['cores']), unique_by=id, max_size=3)
                              if record['cores'] else st.just([]))
            drawn = data.draw(st.lists(st.sampled_from(record['gpus']), unique_by=id, max_size=2)
                              if record['gpus'] else st.just([]))
            gpus = {gpu['index']: data.draw(SHARES | st.just(1.0)) for gpu in drawn}
            cores = [core['index'] for core in cores]
            mem = data.draw(st.sampled_from([0, 0, 2]))
            parts.append((position, cores, {gpu: to_units(part) for gpu, part in gpus.items()}, mem, 0))
            slots.append({'node_index': record['index'], 'cores': cores, 'mem': mem,
                          'gpus': [{'index': gpu, 'occupation': part} for gpu, part in gpus.items()]})
        if self.oracle.possible(parts):
            self.agree(self.slots.claim(slots), self.oracle.claim(parts), len(parts))
        else:
            with pytest.raises(ResourceError):
                self.slots.claim(slots)

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, 99))
    def release(self, number: int) -> None:
        placement, parts = self.held.pop(number % len(self.held))
        self.slots.release(placement)
        self.oracle.release(parts)
        with pytest.raises(ResourceError, match='released before'):
            self.slots.release(placement)

    @precondition(lambda self: self.held)
    @rule(count=st.integers(1, 20))
    def release_many(self, count: int) -> None:
        released, self.held = self.held[:count], self.held[count:]
        self.slots.release_many([placement for placement, _ in released])
        for _, parts in released:
            self.oracle.release(parts)

    @rule(position=st.integers(0, 8), hidden=st.booleans())
    def hide_or_show(self, position: int, hidden: bool) -> None:
        position = self.position(position)
        (self.slots.hide if hidden else self.slots.show)(position)
        self.oracle.nodes[position].hidden = hidden

    @rule(position=st.integers(0, 8), down=st.booleans())
    def lose_or_regain(self, position: int, down: bool) -> None:
        position = self.position(position)
        (self.slots.set_down if down else self.slots.set_up)(position)
        self.oracle.nodes[position].down = down

    @rule(position=st.integers(0, 8), number=st.integers(0, 9))
    def block(self, position: int, number: int) -> None:
        position = self.position(position)
        cores = [core['index'] for core in self.records[position]['cores'][number:number + 2]]
        gpus = [gpu['index'] for gpu in self.records[position]['gpus'][number:number + 1]]
        self.slots.block(position, cores, gpus)
        self.oracle.block(position, cores, gpus)

    @rule(shape=SHAPES)
    def ask(self, shape: Shape) -> None:
        assert self.slots.most(shape) == self.oracle.most(shape)
        candidates = self.slots.candidates(shape)
        assert len(candidates) == self.oracle.candidates(shape)
        empty = [self.oracle.empty[position].room(shape, shape.ranks_per_node or shape.ranks)
                 for position in candidates]
        assert not candidates or sum(empty) >= shape.ranks

    @invariant()
    def verified(self) -> None:
        check(self.slots)
        for position, node in enumerate(self.oracle.nodes):
            free = self.slots.free(position)
            assert (free['cores'], free['mem'], free['lfs']) == (len(node.cores), node.mem, node.lfs)
            assert self.slots.idle(position) == (node.parts == 0)

    def teardown(self) -> None:
        if hasattr(self, 'slots'):
            self.slots.release_many([placement for placement, _ in self.held])
            check(self.slots)


SlotMapMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None,
                                            suppress_health_check=list(HealthCheck))
TestAgainstTheOracle = SlotMapMachine.TestCase
