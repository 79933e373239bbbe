"""The slot map: where things are placed, what is refused, and that nothing is lost over many events."""

from __future__ import annotations

import gc
import pickle
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from rp_agent.scheduler.slotcheck import check
from rp_agent.scheduler.slotmap import Placement, Shape, SlotMap
from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS
from rp_profiling.write.slots import parse, short_form

Domains = Iterable[tuple[Sequence[int], Sequence[int]]]


def a_node(index: int = 0, cores: int = 4, gpus: int = 2, mem: int = 0, lfs: int = 0, down: Sequence[int] = (),
           ) -> dict[str, Any]:
    return {'index': index, 'name': f'n{index}', 'mem': mem, 'lfs': lfs,
            'cores': [{'index': core, 'occupation': None if core in down else 0.0} for core in range(cores)],
            'gpus': [{'index': gpu, 'occupation': 0.0} for gpu in range(gpus)]}


def a_map(count: int = 4, domains: Domains = (), **size: Any) -> SlotMap:
    return SlotMap([a_node(index, **size) for index in range(count)], domains)


def placed(placement: Placement | None) -> Placement:
    """The placement that the slot map has found room for."""
    assert placement is not None
    return placement


def ranks_of(placement: Placement) -> list[tuple[int, list[int]]]:
    """Node and cores of each rank."""
    return [(slot['node_index'], [core['index'] for core in slot['cores']]) for slot in placement.slots()]


def gpus_of(placement: Placement) -> list[list[int]]:
    return [[gpu['index'] for gpu in slot['gpus']] for slot in placement.slots()]


class TestShape:
    def test_defaults_are_one_core(self) -> None:
        shape = Shape()
        assert (shape.ranks, shape.cores, shape.gpus, shape.share, shape.mem, shape.lfs, shape.ranks_per_node) == (
            1, 1, 0, 0, 0, 0, 0)

    @pytest.mark.parametrize(('gpus', 'whole', 'share'), [
        (0, 0, 0), (1, 1, 0), (2.0, 2, 0), (0.5, 0, UNITS // 2), (1e-15, 0, 1)])
    def test_gpus_are_whole_or_a_share(self, gpus: float, whole: int, share: int) -> None:
        shape = Shape(gpus=gpus)
        assert (shape.gpus, shape.share) == (whole, share)

    def test_equal_by_value(self) -> None:
        one, other = Shape(ranks=2, gpus=0.5, mem=7), Shape(2, 1, 0.5, 7)
        assert one == other
        assert hash(one) == hash(other)
        assert pickle.loads(pickle.dumps(one)) == one
        assert one != Shape(ranks=2, gpus=0.5, mem=8)
        assert one != 'something else'
        assert repr(one) == 'Shape(ranks=2, cores=1, gpus=0.5, mem=7, lfs=0, ranks_per_node=0)'

    def test_does_not_change(self) -> None:
        with pytest.raises(AttributeError):
            Shape().ranks = 2

    @pytest.mark.parametrize(('name', 'value'), [
        ('ranks', 0), ('ranks', True), ('ranks', 1.5), ('cores', -1), ('cores', 'x'), ('gpus', 1.5), ('gpus', -1),
        ('gpus', 'x'), ('gpus', float('nan')), ('gpus', 1e300), ('mem', -1), ('lfs', 1 << 60), ('ranks_per_node', -1)])
    def test_refuses_nonsense(self, name: str, value: Any) -> None:
        with pytest.raises(ResourceError, match=name) as caught:
            Shape(**{name: value})
        assert repr(value) in str(caught.value)


class TestRule:
    def test_first_node_with_room_for_all_ranks(self) -> None:
        slots = a_map()
        slots.place(Shape(cores=2))
        assert ranks_of(placed(slots.place(Shape(ranks=3)))) == [(1, [0]), (1, [1]), (1, [2])]
        assert ranks_of(placed(slots.place(Shape(ranks=2)))) == [(0, [2]), (0, [3])]

    def test_then_a_run_of_idle_neighbours(self) -> None:
        slots = a_map(6)
        taken = [placed(slots.place(Shape(cores=4))) for _ in range(4)]
        slots.release_many([taken[0], taken[2], taken[3]])  # only node 1 is in use
        assert placed(slots.place(Shape(ranks=6))).nodes() == [2, 3]
        assert placed(slots.place(Shape(ranks=5))).nodes() == [4, 5]
        assert placed(slots.place(Shape(ranks=5))).nodes() == [0, 3]

    def test_then_the_nodes_with_the_most_room(self) -> None:
        slots = a_map(4)
        for cores, node in (3, 0), (1, 1), (1, 2), (2, 3):
            slots.place_on(Shape(cores=cores), [node])
        assert placed(slots.place(Shape(ranks=8))).nodes() == [1, 2, 3]
        check(slots)

    def test_last_node_is_the_first_with_room_for_the_rest(self) -> None:
        slots = a_map(3)
        for cores, node in (2, 0), (1, 1), (1, 2):
            slots.place_on(Shape(cores=cores), [node])
        assert placed(slots.place(Shape(ranks=5))).nodes() == [1, 0]

    def test_all_or_nothing(self) -> None:
        slots = a_map(2)
        slots.place(Shape(cores=2))
        assert slots.place(Shape(ranks=7)) is None
        assert slots.place(Shape(ranks=2, cores=3)) is None
        assert [slots.free(position)['cores'] for position in (0, 1)] == [2, 4]

    def test_ranks_per_node(self) -> None:
        slots = a_map(3)
        assert placed(slots.place(Shape(ranks=5, ranks_per_node=2))).nodes() == [0, 1, 2]
        assert placed(slots.place(Shape(ranks=2, ranks_per_node=1))).nodes() == [0, 1]
        assert slots.place(Shape(ranks=5, ranks_per_node=1)) is None
        check(slots)

    def test_domains(self) -> None:
        slots = a_map(1, [([0, 1, 2, 3], [0]), ([4, 5, 6, 7], [1])], cores=8)
        assert ranks_of(placed(slots.place(Shape(cores=3)))) == [(0, [0, 1, 2])]
        assert ranks_of(placed(slots.place(Shape(cores=2)))) == [(0, [4, 5])]
        second = placed(slots.place(Shape(gpus=1)))
        assert (ranks_of(second), gpus_of(second)) == ([(0, [3])], [[0]])
        across = placed(slots.place(Shape(cores=2, gpus=1)))
        assert (ranks_of(across), gpus_of(across)) == ([(0, [6, 7])], [[1]])
        slots.release_many([second])
        far = placed(slots.place(Shape(cores=1, gpus=1)))
        assert (ranks_of(far), gpus_of(far)) == ([(0, [3])], [[0]])

    def test_rank_that_no_domain_holds_lies_across(self) -> None:
        slots = a_map(1, [([0, 1], [0]), ([2, 3], [1])])
        placement = placed(slots.place(Shape(cores=3, gpus=2)))
        assert (ranks_of(placement), gpus_of(placement)) == ([(0, [0, 1, 2])], [[0, 1]])

    def test_share_comes_from_the_fullest_gpu(self) -> None:
        slots = a_map(1, cores=8)
        shared = [placed(slots.place(Shape(gpus=share))) for share in (0.3, 0.5, 0.5, 0.3)]
        assert [gpus_of(each)[0] for each in shared] == [[0], [0], [1], [1]]
        assert slots.place(Shape(gpus=0.25)) is None
        assert slots.free(0)['share'] == pytest.approx(0.2)

    def test_equal_shares_fill_a_gpu(self) -> None:
        slots = a_map(1, cores=7, gpus=1)
        placements = slots.place_many(Shape(gpus=1 / 7), 8)
        assert len(placements) == 7
        slots.release_many(placements)
        assert slots.free(0)['gpus'] == 1

    def test_memory_and_storage(self) -> None:
        slots = a_map(2, mem=10, lfs=5)
        assert placed(slots.place(Shape(ranks=3, mem=4, lfs=1))).nodes() == [0, 1]
        assert placed(slots.place(Shape(mem=3, lfs=4))).nodes() == [1]
        assert slots.free(0) == {'cores': 2, 'gpus': 2, 'share': 1.0, 'mem': 2, 'lfs': 3}

    def test_avoid(self) -> None:
        slots = a_map(3)
        assert placed(slots.place(Shape(), avoid=[0, 1])).nodes() == [2]
        assert slots.place(Shape(cores=4), avoid=range(3)) is None
        assert slots.place(Shape(ranks=8), avoid=[1]) is None
        assert placed(slots.place(Shape())).nodes() == [0]
        check(slots)

    def test_place_many_is_the_same_as_many_times_place(self) -> None:
        one, other = a_map(5), a_map(5)
        for shape in Shape(cores=3), Shape(ranks=6), Shape(ranks=2), Shape():
            many = one.place_many(shape, 3)
            single = [other.place(shape) for _ in range(3)]
            assert [each.slots() for each in many] == [each.slots() for each in single if each]

    def test_place_many_as_many_as_there_is_room_for(self) -> None:
        assert len(a_map(2).place_many(Shape(ranks=2), 1 << 62)) == 4

    def test_nothing_but_memory(self) -> None:
        slots = a_map(2, cores=0, gpus=0, mem=4)
        assert placed(slots.place(Shape(ranks=3, cores=0, mem=2))).nodes() == [0, 1]
        check(slots)


class TestPlacement:
    def test_slots_as_plain_data(self) -> None:
        placement = placed(a_map(1, mem=8, lfs=9).place(Shape(cores=2, gpus=0.25, mem=3, lfs=4)))
        assert placement.slots() == [{
            'node_index': 0, 'node_name': 'n0',
            'cores': [{'index': 0, 'occupation': 1.0}, {'index': 1, 'occupation': 1.0}],
            'gpus': [{'index': 0, 'occupation': 0.25}], 'mem': 3, 'lfs': 4, 'version': 1}]
        assert placement.shape == Shape(cores=2, gpus=0.25, mem=3, lfs=4)

    @pytest.mark.parametrize('shape', [
        Shape(), Shape(cores=70, gpus=1), Shape(ranks=3, cores=65, gpus=2), Shape(cores=0, gpus=1),
        Shape(ranks=5, gpus=0.25), Shape(cores=0, mem=1), Shape(ranks=200)])
    def test_the_short_form_says_the_same(self, shape: Shape) -> None:
        slots = a_map(3, cores=200, gpus=6, mem=8)
        slots.place(Shape(cores=3, gpus=1))
        hole = placed(slots.place(Shape(cores=1)))
        slots.place(Shape(cores=1))
        slots.release(hole)
        placement = placed(slots.place(shape))
        assert parse(placement.trace()) == parse(short_form(placement.slots()))

    @pytest.mark.parametrize('cores', [63, 64, 65, 128])
    def test_the_short_form_ends_with_the_last_core_of_a_node(self, cores: int) -> None:
        assert placed(a_map(1, cores=cores, gpus=0).place(Shape(cores=cores))).trace() == f'0:0-{cores - 1}:'

    def test_slots_are_known_after_the_release(self) -> None:
        slots = a_map()
        placement = placed(slots.place(Shape(ranks=2)))
        before, held = placement.slots(), [placement.held]
        slots.release(placement)
        held.append(placement.held)
        assert held == [True, False]
        assert placement.slots() == before

    def test_outlives_the_slot_map(self) -> None:
        slots = a_map()
        placement = placed(slots.place(Shape(gpus=1)))
        del slots
        gc.collect()
        assert gpus_of(placement) == [[0]]

    def test_is_held_even_if_forgotten(self) -> None:
        slots = a_map(1)
        slots.place(Shape(cores=3))
        gc.collect()
        check(slots)
        assert slots.free(0)['cores'] == 1

    def test_is_made_by_a_slot_map_only(self) -> None:
        with pytest.raises(TypeError, match='SlotMap'):
            Placement()


class TestRelease:
    def test_twice_is_refused(self) -> None:
        slots = a_map()
        placement = placed(slots.place(Shape()))
        slots.release(placement)
        with pytest.raises(ResourceError, match='released before'):
            slots.release(placement)

    def test_of_another_map_is_refused(self) -> None:
        placement = placed(a_map().place(Shape()))
        with pytest.raises(ResourceError, match='not held by this slot map'):
            a_map().release(placement)
        assert placement.held

    def test_many_gives_back_what_it_can(self) -> None:
        slots = a_map()
        one, two, three = slots.place_many(Shape(cores=4), 3)
        slots.release(two)
        with pytest.raises(ResourceError, match='1 placement'):
            slots.release_many([one, two, three])
        check(slots)
        assert len(slots.place_many(Shape(cores=4), 9)) == 4

    @pytest.mark.parametrize('wrong', [None, 'x'])
    def test_of_something_else(self, wrong: Any) -> None:
        with pytest.raises(TypeError):
            a_map().release(wrong)


class TestPlaceOn:
    def test_in_the_order_given(self) -> None:
        slots = a_map()
        assert placed(slots.place_on(Shape(ranks=6), [2, 0, 1])).nodes() == [2, 0]
        assert slots.place_on(Shape(ranks=3), [2, 0]) is None

    def test_hidden_nodes_too(self) -> None:
        slots = a_map(1)
        slots.hide(0)
        assert slots.place(Shape()) is None
        assert placed(slots.place_on(Shape(), [0])).nodes() == [0]

    def test_whole_nodes(self) -> None:
        slots = a_map(3, mem=7, cores=70)
        small = placed(slots.place(Shape()))
        placement = placed(slots.place_on(Shape(ranks=2, gpus=0.5, mem=1), [0, 2, 1], whole=True))
        assert placement.nodes() == [2]
        assert ranks_of(placement) == [(2, [0]), (2, [1])]
        assert slots.free(2) == {'cores': 0, 'gpus': 0, 'share': 0.0, 'mem': 0, 'lfs': 0}
        assert slots.place_on(Shape(), [2], whole=True) is None
        check(slots)
        slots.release_many([placement, small])
        check(slots)
        assert slots.idle(2)

    @pytest.mark.parametrize('position', [4, -1, 'x', 1.0])
    def test_bad_position(self, position: Any) -> None:
        with pytest.raises(ResourceError, match='position must be from 0 to 3'):
            a_map().place_on(Shape(), [position])


class TestClaim:
    def test_exactly_these(self) -> None:
        slots = a_map()
        half = [{'index': 1, 'occupation': 0.5}]
        given = [{'node_index': 2, 'cores': [3, {'index': 1, 'occupation': 1.0}], 'gpus': half},
                 {'node_index': 0, 'cores': [2], 'gpus': [0], 'mem': 0, 'lfs': 0}]
        placement = placed(slots.claim(given))
        assert ranks_of(placement) == [(2, [1, 3]), (0, [2])]
        assert [slot['gpus'] for slot in placement.slots()] == [
            half, [{'index': 0, 'occupation': 1.0}]]
        assert placement.shape is None
        assert slots.claim(given) is None
        check(slots)
        slots.release(placement)
        assert placed(slots.claim(placement.slots())).slots() == placement.slots()

    @pytest.mark.parametrize(('slot', 'message'), [
        ({'node_index': 9, 'cores': [0]}, 'node 9'),
        ({'node_index': 0, 'cores': [4]}, 'core 4 of node 0 does not exist'),
        ({'node_index': 0, 'cores': [3]}, 'core 3 of node 0 .* must not be used'),
        ({'node_index': 0, 'cores': [0, 0]}, 'core 0 more than once'),
        ({'node_index': 0, 'cores': [{'index': 0, 'occupation': 0.5}]}, r'whole cores, not 0\.5'),
        ({'node_index': 0, 'cores': [{'index': 0, 'occupation': None}]}, 'None of core 0'),
        ({'node_index': 0, 'cores': [], 'gpus': [2]}, 'GPU 2 of node 0'),
        ({'node_index': 0, 'cores': [], 'gpus': [{'index': 0, 'occupation': 2}]}, '2 of GPU 0'),
        ({'node_index': 0, 'cores': [], 'mem': 1}, '1 MB mem'),
        ({'node_index': 0, 'cores': [], 'mem': -1}, 'mem must be'),
        ({'node_index': 0}, 'node_index, cores and gpus'),
        ({'node_index': 0, 'cores': ['x']}, 'cores and gpus'),
        (3, 'cores and gpus')])
    def test_what_cannot_be(self, slot: Any, message: str) -> None:
        slots = SlotMap([a_node(down=[3])])
        with pytest.raises(ResourceError, match=message):
            slots.claim([slot])
        check(slots)

    def test_what_cannot_be_together(self) -> None:
        slots = a_map(1)
        with pytest.raises(ResourceError, match='core 1 of node 0 is in more than one slot'):
            slots.claim([{'node_index': 0, 'cores': [1]}] * 2)
        share = {'node_index': 0, 'cores': [], 'gpus': [{'index': 0, 'occupation': 0.6}]}
        with pytest.raises(ResourceError, match=r'GPU 0 of node 0 cannot give 1\.2'):
            slots.claim([share] * 2)
        with pytest.raises(ResourceError, match='empty'):
            slots.claim([])
        check(slots)

    def test_on_a_lost_node(self) -> None:
        slots = a_map(1)
        slots.set_down(0)
        assert slots.claim([{'node_index': 0, 'cores': [0]}]) is None


class TestNodes:
    def test_differ_and_have_gaps(self) -> None:
        slots = SlotMap([a_node(7, cores=1), a_node(3, cores=130, gpus=0)])
        placement = placed(slots.place(Shape(cores=129)))
        assert placement.nodes() == [1]
        assert ranks_of(placement) == [(3, list(range(129)))]
        assert len(slots) == 2

    def test_occupations_are_kept_for_ever(self) -> None:
        node = a_node(cores=2, gpus=1)
        node['cores'][0]['occupation'] = 0.5
        node['gpus'][0]['occupation'] = 0.5
        slots = SlotMap([node])
        assert slots.free(0) == {'cores': 1, 'gpus': 0, 'share': 0.5, 'mem': 0, 'lfs': 0}
        placement = placed(slots.place(Shape(gpus=0.5)))
        assert ranks_of(placement) == [(0, [1])]
        slots.release(placement)
        assert slots.place(Shape(gpus=1)) is None
        check(slots)

    def test_lost_node_is_accounted_for(self) -> None:
        slots = a_map(2)
        placement = placed(slots.place(Shape(cores=3)))
        slots.set_down(0)
        assert placed(slots.place(Shape())).nodes() == [1]
        assert slots.most(Shape(ranks=9)) == 4
        slots.release(placement)
        assert slots.place(Shape(ranks=4)) is None
        slots.set_up(0)
        assert placed(slots.place(Shape(ranks=4))).nodes() == [0]
        check(slots)

    def test_blocked_while_in_use(self) -> None:
        slots = a_map(1)
        placement = placed(slots.place(Shape(cores=2, gpus=1)))
        slots.block(0, [1, 3], [0])
        slots.release(placement)
        assert slots.free(0) == {'cores': 2, 'gpus': 1, 'share': 1.0, 'mem': 0, 'lfs': 0}
        assert ranks_of(placed(slots.place(Shape(cores=2)))) == [(0, [0, 2])]
        assert slots.most(Shape(ranks=9)) == 2
        check(slots)

    def test_bad_block_changes_nothing(self) -> None:
        slots = a_map(1)
        with pytest.raises(ResourceError, match='index of gpus'):
            slots.block(0, [0], [64])
        check(slots)
        assert slots.free(0)['cores'] == 4

    def test_candidates_are_those_with_most_free(self) -> None:
        slots = a_map(4)
        slots.place_on(Shape(cores=3), [0])
        slots.place_on(Shape(cores=2), [2])
        assert slots.candidates(Shape(ranks=9)) == [1, 3, 2]
        slots.hide(1)
        assert slots.candidates(Shape(ranks=9)) == [3, 2, 0]
        assert slots.candidates(Shape(ranks=13)) == []

    @pytest.mark.parametrize(('change', 'message'), [
        ({'index': None}, None), ({'cores': None}, 'must have index'), ({'cores': [3]}, 'must have index'),
        ({'mem': -1}, 'mem'), ({'lfs': 'x'}, 'lfs'),
        ({'cores': [{'index': -1, 'occupation': 0.0}]}, 'index of cores'),
        ({'cores': [{'index': 99999, 'occupation': 0.0}]}, '99999'),
        ({'gpus': [{'index': 64, 'occupation': 0.0}]}, '64'),
        ({'gpus': [{'index': 0, 'occupation': 0.0}] * 2}, 'two gpus with the index 0'),
        ({'gpus': [{'index': 0, 'occupation': 1.5}]}, r'not 1\.5')])
    def test_bad_nodes(self, change: dict[str, Any], message: str | None) -> None:
        node = {**a_node(), **change}
        if message is None:
            del node['index']
        with pytest.raises(ResourceError, match=message):
            SlotMap([node])

    def test_same_index_twice(self) -> None:
        with pytest.raises(ResourceError, match='same index'):
            SlotMap([a_node(1), a_node(1)])

    def test_no_nodes(self) -> None:
        slots = SlotMap([])
        assert slots.place(Shape(ranks=2)) is None
        assert slots.most(Shape()) == 0
        assert slots.candidates(Shape()) == []
        check(slots)


def test_nothing_is_shared_or_lost_over_many_events() -> None:
    """20,000 events on nodes of several words, each core and GPU share booked in a plain ledger."""
    generator = random.Random(7)
    slots = a_map(40, [(range(35), [0]), (range(35, 70), [1])], cores=70, gpus=2, mem=100)
    shapes = [Shape(), Shape(cores=7, gpus=1), Shape(ranks=4, cores=3), Shape(gpus=0.3), Shape(cores=70),
              Shape(ranks=30, cores=5, mem=7), Shape(ranks=9, gpus=0.25, ranks_per_node=2), Shape(ranks=150)]
    held: list[Placement] = []
    cores: set[tuple[int, int]] = set()
    gpus: dict[tuple[int, int], float] = {}
    for event in range(20_000):
        if held and generator.random() < 0.5:
            placement = held.pop(generator.randrange(len(held)))
            slots.release(placement)
        else:
            given = slots.place(generator.choice(shapes))
            if given is None:
                continue
            placement = given
            held.append(placement)
        for slot in placement.slots():
            node = slot['node_index']
            taken = {(node, core['index']) for core in slot['cores']}
            assert cores.isdisjoint(taken) if placement.held else cores.issuperset(taken)
            cores ^= taken
            for gpu in slot['gpus']:
                key = node, gpu['index']
                gpus[key] = gpus.get(key, 0) + (gpu['occupation'] if placement.held else -gpu['occupation'])
                assert -1e-9 < gpus[key] < 1 + 1e-9
        if event % 5_000 == 0:
            check(slots)
    slots.release_many(held)
    check(slots)
    assert all(slots.free(position) == {'cores': 70, 'gpus': 2, 'share': 1.0, 'mem': 100, 'lfs': 0}
               for position in range(40))
