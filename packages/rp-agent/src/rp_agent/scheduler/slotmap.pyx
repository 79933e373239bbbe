"""The slot map: the search for room on the nodes of a pilot, and its allocation. `nodemap` keeps the free resources.

Rules:

- A request is placed as a whole or not at all. All ranks are placed on the first node with room for all of them.
  Without such a node, they are placed on the first run of idle adjacent nodes that has the minimum length; without such
  a run, on the first node with the most room for the remaining ranks, repeatedly.
- On a node, each rank in turn gets the lowest free cores and GPUs of the first NUMA domain with enough of both, else
  the cores of the first domain with enough cores, else the lowest of the node. A share of a GPU comes from the most
  used GPU that has it, the lowest of these.
"""

from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

from rp_agent.scheduler.nodemap cimport (
    NodeMap,
    rp_at,
    rp_choose,
    rp_count,
    rp_free,
    rp_index_fits,
    rp_index_next,
    rp_index_run,
    rp_need,
    rp_node,
    rp_room,
    rp_take,
    rp_usable,
    rp_used,
)
from rp_agent.scheduler.placement cimport Placement, Shape, bit_indices, part_of, rp_lowest, rp_part, units_of

import cython

import rp_agent.scheduler.placement as _placement
from rp_agent.scheduler.slotdata import read_slot, refuse_impossible, together
from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS as _UNITS

globals().update(Placement=_placement.Placement, Shape=_placement.Shape)  # cimported names are invisible to Python

cdef int64_t UNITS = _UNITS


@cython.final
@cython.auto_pickle(False)
cdef class SlotMap(NodeMap):
    """The nodes of a pilot and their free resources.

    `nodes` are plain data as in `Allocation.node_list()`. An occupation of None marks a blocked device; other
    occupations are permanent. `domains` are the NUMA domains of every node, as indices of cores and of GPUs. Positions
    count the nodes from 0, in the given order.
    """

    cdef bint may_fit(self, Shape shape) noexcept:
        """Return False if `place` would certainly return None."""
        cdef rp_need need = rp_need(shape.cores, shape.gpus, shape.share, shape.mem, shape.lfs)
        return (rp_index_fits(&self.index, 1, &need)
                and self.free_cores >= <int64_t>shape.ranks * shape.cores
                and self.free_gpus >= <int64_t>shape.ranks * shape.gpus)

    cdef bint may_fit_within(self, Shape shape, int32_t first, int32_t end) noexcept:
        """Return False if there is certainly no room on the nodes from `first` up to `end`."""
        cdef rp_need need
        if first == 0 and end >= self.nodes.count:
            return self.may_fit(shape)
        need = _need(shape, 1)
        return 0 <= rp_index_next(&self.index, &need, first) < end

    def place(self, Shape shape not None, avoid=()):
        """Return a placement, or None if there is no room now; `avoid` are positions to exclude."""
        if not avoid:
            return self._place(shape)
        positions = [self._position(each) for each in avoid]
        self._mask(positions, True)
        try:
            return self._place(shape)
        finally:
            self._mask(positions, False)

    def place_many(self, Shape shape not None, Py_ssize_t count):
        """Return up to `count` placements of the shape, equal to those of repeated calls of `place`."""
        cdef list found = []
        cdef int32_t position
        cdef int64_t times
        cdef Placement placement
        while len(found) < count:
            position = self._one_node(shape) if self.may_fit(shape) else -1
            if position < 0:
                break
            times = min(count - len(found), INT_MAX) * <int64_t>shape.ranks
            times = rp_room(&self.nodes, position, &shape.ask, times) // shape.ranks
            try:
                for _ in range(times):
                    placement = self._new(shape, shape.ranks, shape.ranks, -1)
                    self._fill(placement, shape, position, 0, shape.ranks)
                    self._hold(placement)
                    found.append(placement)
            finally:
                self._publish(position)
        while shape.ranks > 1 and len(found) < count:
            placement = self._place_over_nodes(shape) if self.may_fit(shape) else None
            if placement is None:
                break
            found.append(placement)
        return found

    def place_in(self, Shape shape not None, int32_t first, int32_t end):
        """Return a placement on the first nodes from `first` up to `end` that have room and are not hidden.

        The result equals that of `place_on` for these nodes, without a scan; None if there is no room now.
        """
        cdef rp_need need = _need(shape, 1)
        cdef int32_t position
        cdef int64_t count, missing = shape.ranks
        if not 0 <= first <= end <= self.nodes.count:
            raise ResourceError(f'{first} to {end} are no positions of nodes: there are {self.nodes.count} nodes')
        plan = []
        position = rp_index_next(&self.index, &need, first)
        while missing and 0 <= position < end:
            count = self._holds(shape, position, missing)
            if count:
                plan.append((position, count))
                missing -= count
            position = rp_index_next(&self.index, &need, position + 1)
        return None if missing else self._carried_out(shape, plan, False)

    def place_on(self, Shape shape not None, positions, bint whole=False):
        """Return a placement on as few of these nodes as possible from the front, hidden or not; None without room.

        With `whole`, each node is taken as a whole, and nodes that are not idle are skipped.
        """
        cdef int32_t position
        cdef int64_t count, missing = shape.ranks
        plan = {}
        for each in positions:
            position = self._position(each)
            if position in plan or (whole and rp_at(&self.nodes, position).held):
                continue
            if not self.may_fit_on(shape, position):
                continue
            plan[position] = count = self._holds(shape, position, missing)
            missing -= count
            if missing == 0:
                break
        return None if missing else self._carried_out(shape, list(plan.items()), whole)

    def _carried_out(self, Shape shape, list plan, bint whole):
        """Return a placement of these numbers of ranks on nodes that have room for them, which are taken as a whole."""
        cdef int32_t position, part = 0, ranks = shape.ranks
        cdef int64_t count
        cdef Placement placement
        if whole:
            placement = self._new(shape, ranks, ranks + len(plan),
                                  ranks * (shape.gpus + 1) + len(plan) * self.nodes.gpus)
        else:
            placement = self._new(shape, ranks, ranks, -1)
        for position, count in plan:
            self._fill(placement, shape, position, part, count)
            part += count
        if whole:
            self._take_rest(placement, [position for position, _ in plan])
        self._hold(placement)
        for position, _ in plan:
            self._publish(position)
        return placement

    def claim(self, slots):
        """Return a placement of exactly these slots, on hidden nodes as well; None if a part of them is in use.

        Slots are mappings like those of `Placement.slots()`; a device may also be an index, for the whole device.
        Raises `ResourceError` if a device is missing, or the slots can never be free together.
        """
        cdef int32_t which, core, gpu
        cdef Py_ssize_t number
        cdef Placement placement
        cdef rp_part *part
        cdef int64_t *units
        wanted = [read_slot(slot) for slot in slots]
        if not wanted:
            raise ResourceError('slots must not be empty')
        if not self._all_free(together(wanted)):
            return None
        placement = self._new(None, len(wanted), len(wanted), sum([len(slot.gpus) for slot in wanted]))
        units = units_of(placement)
        for which, slot in enumerate(wanted):
            part = part_of(placement, which)
            part.position = self.by_index[slot.node_index]
            memset(part.cores, 0, placement.words * sizeof(uint64_t))
            for core in slot.cores:
                part.cores[core // 64] |= <uint64_t>1 << (core % 64)
            part.gpus = 0
            for number, (gpu, asked) in enumerate(slot.gpus.items()):
                part.gpus |= <uint64_t>1 << gpu
                units[number] = asked
            placement.amounts[2 * which], placement.amounts[2 * which + 1] = slot.mem, slot.lfs
            rp_take(&self.nodes, part, 0, units, slot.mem, slot.lfs)
            units += rp_count(part.gpus)
            self._touch(part.position)
        self._hold(placement)
        self._settle()
        return placement

    cdef Placement _place(self, Shape shape):
        cdef Placement placement
        cdef int32_t position
        if not self.may_fit(shape):
            return None
        position = self._one_node(shape)
        if position < 0:
            return self._place_over_nodes(shape) if shape.ranks > 1 else None
        placement = self._new(shape, shape.ranks, shape.ranks, -1)
        self._fill(placement, shape, position, 0, shape.ranks)
        self._hold(placement)
        self._publish(position)
        return placement

    cdef int32_t _one_node(self, Shape shape) noexcept nogil:
        """Return the first node with room for all ranks; -1 if there is none."""
        cdef rp_need need = _need(shape, shape.ranks)
        cdef int32_t position
        if 0 < shape.ranks_per_node < shape.ranks:
            return -1
        position = rp_index_next(&self.index, &need, 0)
        if shape.share and shape.ranks > 1:  # the index only holds the largest share
            while position >= 0 and rp_room(&self.nodes, position, &shape.ask, shape.ranks) < shape.ranks:
                position = rp_index_next(&self.index, &need, position + 1)
        return position

    cdef Placement _place_over_nodes(self, Shape shape):
        """Return a placement on several nodes, None without room; called if no node has room for all ranks."""
        cdef Placement placement = None
        cdef int64_t per_node = self._per_node(shape), length
        cdef int32_t first
        if per_node == 0:
            return None
        length = (shape.ranks + per_node - 1) // per_node
        if 1 < length <= self.nodes.count:
            first = rp_index_run(&self.index, <int32_t>length)
            if first >= 0:
                placement = self._place_on_run(shape, first, length)
        if placement is None and self.missing(shape, 0, self.nodes.count) == 0:
            placement = self._place_greedily(shape)
        return placement

    cdef Placement _place_on_run(self, Shape shape, int32_t first, int64_t length):
        """Return a placement on the nodes from `first` on; None if they cannot hold it because nodes differ."""
        cdef Placement placement
        cdef int64_t count, missing = shape.ranks
        cdef int32_t position
        for position in range(first, first + <int32_t>length):
            missing -= self._holds(shape, position, missing)
        if missing > 0:
            return None
        placement = self._new(shape, shape.ranks, shape.ranks, -1)
        missing = shape.ranks
        for position in range(first, first + <int32_t>length):
            count = self._holds(shape, position, missing)
            self._fill(placement, shape, position, shape.ranks - <int32_t>missing, count)
            self._publish(position)
            missing -= count
        self._hold(placement)
        return placement

    cdef Placement _place_greedily(self, Shape shape):
        """Return a placement on the nodes with the most room, which must be sufficient together."""
        cdef Placement placement = self._new(shape, shape.ranks, shape.ranks, -1)
        cdef int64_t count, missing = shape.ranks, limit = shape.ranks_per_node or shape.ranks
        cdef int32_t position, which
        while missing > 0:
            position = self._roomiest(shape, min(limit, missing))
            count = self._holds(shape, position, missing)
            self._fill(placement, shape, position, shape.ranks - <int32_t>missing, count)
            rp_at(&self.nodes, position).masked = True
            self._publish(position)
            missing -= count
        for which in range(placement.n_parts):
            position = part_of(placement, which).position
            if rp_at(&self.nodes, position).masked:
                rp_at(&self.nodes, position).masked = False
                self._publish(position)
        self._hold(placement)
        return placement

    cdef int64_t _holds(self, Shape shape, int32_t position, int64_t missing) noexcept nogil:
        """Return how many of the remaining ranks fit on the node."""
        if 0 < shape.ranks_per_node < missing:
            missing = shape.ranks_per_node
        return rp_room(&self.nodes, position, &shape.ask, missing)

    cdef int32_t _roomiest(self, Shape shape, int64_t limit) noexcept nogil:
        """Return the first node with the most room, up to `limit` ranks; -1 if there is no room."""
        cdef rp_need need = _need(shape, 1)
        cdef int64_t most = 0, middle, bound = limit, room
        cdef int32_t position = 0, found = -1
        if not rp_index_fits(&self.index, 1, &need):
            return -1
        limit = 1
        while limit < bound:
            middle = (limit + bound + 1) // 2
            need = _need(shape, middle)
            if rp_index_fits(&self.index, 1, &need):
                limit = middle
            else:
                bound = middle - 1
        if shape.share == 0 and shape.mem == 0 and shape.lfs == 0:  # then the index is exact
            need = _need(shape, limit)
            return rp_index_next(&self.index, &need, 0)
        while most < limit:
            need = _need(shape, most + 1)
            position = rp_index_next(&self.index, &need, position)
            if position < 0:
                break
            room = rp_room(&self.nodes, position, &shape.ask, limit)
            if room > most:
                most = room
                found = position
            position += 1
        return found

    cdef int64_t missing(self, Shape shape, int32_t first, int32_t end) noexcept nogil:
        """Return the number of ranks without room on the nodes from `first` up to `end`."""
        cdef rp_need need = _need(shape, 1)
        cdef int64_t missing = shape.ranks
        cdef int32_t position = rp_index_next(&self.index, &need, first)
        while 0 <= position < end and missing > 0:
            missing -= self._holds(shape, position, missing)
            position = rp_index_next(&self.index, &need, position + 1)
        return missing

    cdef void _fill(self, Placement placement, Shape shape, int32_t position, int32_t first,
                    int64_t count) noexcept nogil:
        """Take `count` parts, starting with `first`, from a node that has room for them."""
        cdef int64_t share = shape.share if shape.share else UNITS
        cdef int32_t which
        for which in range(first, first + <int32_t>count):
            rp_choose(&self.nodes, position, &shape.ask, part_of(placement, which))
            rp_take(&self.nodes, part_of(placement, which), share, NULL, shape.mem, shape.lfs)

    def _take_rest(self, Placement placement, list positions):
        """Take the remaining resources of the nodes as further parts of a placement."""
        cdef int32_t which, position
        cdef int64_t *units = units_of(placement)
        cdef int64_t share = placement.shape.share if placement.shape.share else UNITS
        cdef Py_ssize_t number
        cdef uint64_t rest
        cdef rp_part *part
        cdef rp_node *node
        for which in range(placement.ranks):
            placement.amounts[2 * which], placement.amounts[2 * which + 1] = placement.shape.mem, placement.shape.lfs
            for _ in range(rp_count(part_of(placement, which).gpus)):
                units[0] = share
                units += 1
        for which, position in enumerate(positions, placement.ranks):
            part, node = part_of(placement, which), rp_at(&self.nodes, position)
            part.position, part.gpus = position, node.gpus_usable
            memcpy(part.cores, rp_free(&self.nodes, position), placement.words * sizeof(uint64_t))
            placement.amounts[2 * which], placement.amounts[2 * which + 1] = node.mem, node.lfs
            number, rest = 0, part.gpus
            while rest:
                units[number] = UNITS - rp_used(&self.nodes, position)[rp_lowest(rest)]
                number += 1
                rest &= rest - 1
            rp_take(&self.nodes, part, 0, units, node.mem, node.lfs)
            units += number

    def _all_free(self, dict wanted):
        """Return whether the wanted resources are free; raise `ResourceError` if they can never be."""
        cdef int32_t position, device
        cdef int64_t units
        cdef const rp_node *node
        free_now = True
        kinds = list(self.kinds)
        for index, slot in wanted.items():
            if index not in self.by_index:
                raise ResourceError(f'a slot is for node {index!r}, which is not among the {self.nodes.count} nodes')
            position = self.by_index[index]
            node = rp_at(&self.nodes, position)
            refuse_impossible(slot, bit_indices(rp_usable(&self.nodes, position), self.nodes.words), kinds[node.kind])
            cores = bit_indices(rp_free(&self.nodes, position), self.nodes.words)
            if node.down or slot.mem > node.mem or slot.lfs > node.lfs or not set(slot.cores).issubset(cores):
                free_now = False
            for device, units in slot.gpus.items():
                if rp_used(&self.nodes, position)[device] + units > UNITS:
                    free_now = False
        return free_now


cdef inline rp_need _need(Shape shape, int64_t ranks) noexcept nogil:
    """Return the resources of a node with room for that many ranks; for shares, with room for one."""
    return rp_need(ranks * shape.cores, ranks * shape.gpus, shape.share, ranks * shape.mem, ranks * shape.lfs)
