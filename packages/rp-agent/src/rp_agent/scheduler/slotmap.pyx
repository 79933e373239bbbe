"""The slot map: free cores, GPUs, memory and storage of all nodes, and the search for room on them.

Rules:

- Free resources are kept in bitmaps and counters (slotnodes.h). An index over the nodes (slotindex.h) finds the first
  node, or the first run of idle nodes, with room for a request, without a scan of the others.
- A request is placed as a whole or not at all. All ranks are placed on the first node with room for all of them.
  Without such a node, they are placed on the first run of idle adjacent nodes that has the minimum length; without such
  a run, on the first node with the most room for the remaining ranks, repeatedly.
- On a node, each rank in turn gets the lowest free cores and GPUs of the first NUMA domain with enough of both, else
  the cores of the first domain with enough cores, else the lowest of the node. A share of a GPU comes from the most
  used GPU that has it, the lowest of these.
- Every placement is held until it is released. A node that goes down, or a core that is blocked, while it is in use
  stays accounted for until then, and is not used again.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from rp_agent.scheduler.placement cimport (
    Placement,
    Shape,
    bit_indices,
    part_of,
    rp_ask,
    rp_lowest,
    rp_part,
    rp_part_size,
    units_of,
)

import cython

import rp_agent.scheduler.placement as _placement
from rp_agent.scheduler.slotdata import (
    SlotKind,
    read_indices,
    read_nodes,
    read_slot,
    refuse_impossible,
    together,
)
from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS as _UNITS


cdef extern from "slotnodes.h" nogil:
    int rp_nodes_open(rp_nodes *nodes, int32_t count, int32_t words, int32_t gpus, int32_t domains, int64_t units)
    void rp_nodes_close(rp_nodes *nodes)
    rp_node *rp_at(const rp_nodes *nodes, int32_t position)
    uint64_t *rp_free(const rp_nodes *nodes, int32_t position)
    uint64_t *rp_usable(const rp_nodes *nodes, int32_t position)
    int64_t *rp_used(const rp_nodes *nodes, int32_t position)
    int32_t rp_count(uint64_t bits)
    int64_t rp_largest_share(const rp_nodes *nodes, int32_t position, uint64_t among)
    int64_t rp_room(const rp_nodes *nodes, int32_t position, const rp_ask *ask, int64_t limit)
    void rp_choose(const rp_nodes *nodes, int32_t position, const rp_ask *ask, rp_part *part)
    void rp_take(const rp_nodes *nodes, const rp_part *part, int64_t share, const int64_t *units, int64_t mem,
                 int64_t lfs)
    void rp_give(const rp_nodes *nodes, const rp_part *part, int64_t share, const int64_t *units, int64_t mem,
                 int64_t lfs)


cdef extern from "slotindex.h" nogil:
    int rp_index_open(rp_index *index, int32_t count, int32_t gpus)
    void rp_index_close(rp_index *index)
    void rp_index_set_devices(const rp_index *index, int32_t position, int cores, int gpus)
    void rp_index_set_amount(const rp_index *index, int64_t *tree, int32_t position, int64_t amount)
    void rp_index_set_idle(const rp_index *index, int32_t position, int32_t idle)
    bint rp_index_fits(const rp_index *index, int32_t node, const rp_need *need)
    int32_t rp_index_next(const rp_index *index, const rp_need *need, int32_t start)
    int32_t rp_index_run(const rp_index *index, int32_t length)
    void rp_index_expect(const rp_index *index, int32_t position)


globals().update(Placement=_placement.Placement, Shape=_placement.Shape)  # cimported names are invisible to Python

cdef int64_t UNITS = _UNITS
cdef int64_t _epochs = 0


cdef int64_t _next_epoch() noexcept:
    """Return a number that no slot map has used."""
    global _epochs
    _epochs += 1
    return _epochs


@cython.final
@cython.auto_pickle(False)
cdef class SlotMap:
    """The nodes of a pilot and their free resources.

    `nodes` are plain data as in `Allocation.node_list()`. An occupation of None marks a blocked device; other
    occupations are permanent. `domains` are the NUMA domains of every node, as indices of cores and of GPUs. Positions
    count the nodes from 0, in the given order.
    """

    def __init__(self, nodes, domains=()):
        cdef int32_t position
        if self.dirty != NULL:
            raise TypeError('a SlotMap cannot be initialised twice')
        records = read_nodes(nodes)
        near = [read_indices(domain) for domain in domains]
        self.by_index = {record.index: position for position, record in enumerate(records)}
        if len(self.by_index) < len(records):
            raise ResourceError('two nodes have the same index')
        self.table = [(record.index, record.name) for record in records]
        self.kinds, self.kind_up = {}, []
        self._open(len(records), max([(record.cores.bit_length() + 63) // 64 for record in records], default=1) or 1,
                   max([len(record.gpus) for record in records], default=0), len(near))
        for number, (cores, gpus) in enumerate(near):
            self._set_domain(number, cores, gpus)
        for position, record in enumerate(records):
            self._set_node(position, record)
            self._publish(position)

    def __dealloc__(self):
        while self.n_held:
            self.n_held -= 1
            Py_DECREF(<Placement>self.held[self.n_held])
        free(self.held)
        rp_nodes_close(&self.nodes)
        rp_index_close(&self.index)
        free(self.dirty)

    def __len__(self):
        return self.nodes.count

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

    cdef bint may_fit_on(self, Shape shape, int32_t position) noexcept:
        """Return whether one rank of the shape has room on this node, hidden or not."""
        return not rp_at(&self.nodes, position).down and rp_room(&self.nodes, position, &shape.ask, 1) == 1

    cdef void free_on(self, int32_t position, int32_t *cores, int32_t *gpus) noexcept:
        """Set the numbers of free cores and of completely free GPUs of this node."""
        cores[0] = rp_at(&self.nodes, position).cores
        gpus[0] = rp_count(rp_at(&self.nodes, position).gpus)

    def idle(self, position):
        """Return whether nothing is placed on the node."""
        return rp_at(&self.nodes, self._position(position)).held == 0

    def most(self, Shape shape not None):
        """Return how many ranks fit on all nodes that are up when they are empty, up to the ranks of the shape."""
        limit = min(shape.ranks, shape.ranks_per_node or shape.ranks)
        rooms = sum(up * _empty_room(shape, kind, limit)
                    for kind, up in zip(self.kinds, self.kind_up, strict=True) if up)
        return min(rooms, shape.ranks)

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
        cdef int32_t position, part = 0
        cdef int64_t count, missing = shape.ranks
        cdef Placement placement
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
        if missing:
            return None
        placement = self._new(shape, shape.ranks, shape.ranks, -1)
        for position, count in plan:
            self._fill(placement, shape, position, part, count)
            part += count
        self._hold(placement)
        for position, _ in plan:
            self._publish(position)
        return placement

    def place_on(self, Shape shape not None, positions, bint whole=False):
        """Return a placement on as few of these nodes as possible from the front, hidden or not; None without room.

        With `whole`, each node is taken as a whole, and nodes that are not idle are skipped.
        """
        cdef int32_t position, part
        cdef int64_t count, missing = shape.ranks
        cdef Placement placement
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
        if missing:
            return None
        part = shape.ranks
        if whole:
            placement = self._new(shape, part, part + len(plan), part * (shape.gpus + 1) + len(plan) * self.nodes.gpus)
        else:
            placement = self._new(shape, part, part, -1)
        part = 0
        for position, count in plan.items():
            self._fill(placement, shape, position, part, count)
            part += count
        if whole:
            self._take_rest(placement, list(plan))
        self._hold(placement)
        for position in plan:
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

    def release(self, Placement placement not None):
        """Release a placement; raise `ResourceError` if it is not held."""
        self._give_back(placement)
        self._settle()

    def release_many(self, placements):
        """Release placements; raise `ResourceError` if some are not held, after the others were released."""
        refused = 0
        for placement in placements:
            try:
                self._give_back(placement)
            except ResourceError:
                refused += 1
        self._settle()
        if refused:
            raise ResourceError(f'{refused} placement(s) are not held by this slot map: were they released before?')

    def candidates(self, Shape shape not None):
        """Return positions of the smallest set of nodes that hold the request when they are empty; [] if none can.

        Among nodes with equal capacity, those with the most free resources are selected, and come first.
        """
        cdef int32_t position
        cdef int64_t missing = shape.ranks
        cdef const rp_node *node
        limit = min(shape.ranks, shape.ranks_per_node or shape.ranks)
        rooms = [_empty_room(shape, kind, limit) for kind in self.kinds]
        ranked = []
        for position in range(self.nodes.count):
            node = rp_at(&self.nodes, position)
            if rooms[node.kind] and not node.down and not node.hidden:
                ranked.append((-rooms[node.kind], -rp_room(&self.nodes, position, &shape.ask, limit), -node.cores,
                               -rp_count(node.gpus), position))
        chosen = []
        for each in sorted(ranked):
            if missing > 0:
                chosen.append((*each[1:],))
                missing += each[0]
        return [] if missing > 0 else [each[3] for each in sorted(chosen)]

    def hide(self, position):
        """Hide a node from `place` and `place_many`; its free resources are kept."""
        self._mark(self._position(position), 1, -1)

    def show(self, position):
        """Undo `hide`."""
        self._mark(self._position(position), 0, -1)

    def set_down(self, position):
        """Mark a node as lost: nothing is placed on it, and its placements are released as usual."""
        self._mark(self._position(position), -1, 1)

    def set_up(self, position):
        """Mark a node as recovered."""
        self._mark(self._position(position), -1, 0)

    def block(self, position, cores, gpus):
        """Block cores and GPUs; those in use are blocked when they become free."""
        cdef int32_t at = self._position(position), core, gpu
        cdef rp_node *node = rp_at(&self.nodes, at)
        cdef uint64_t *usable = rp_usable(&self.nodes, at)
        cdef uint64_t *free_now = rp_free(&self.nodes, at)
        cdef uint64_t bit
        cores, gpus = read_indices((cores, gpus))
        kind = list(self.kinds)[node.kind]
        count = kind.cores
        for core in cores:
            if core < 64 * self.nodes.words:
                bit = <uint64_t>1 << (core % 64)
                count -= 1 if usable[core // 64] & bit else 0
                node.cores -= 1 if free_now[core // 64] & bit else 0
                usable[core // 64] &= ~bit
                free_now[core // 64] &= ~bit
        for gpu in gpus:
            node.gpus &= ~(<uint64_t>1 << gpu)
            node.gpus_usable &= ~(<uint64_t>1 << gpu)
        units = [each if node.gpus_usable >> gpu & 1 else 0 for gpu, each in enumerate(kind.gpus)]
        self._set_kind(at, kind._replace(cores=count, gpus=tuple(units)))
        self._publish(at)

    def free(self, position):
        """Return the free resources of a node: numbers of cores and GPUs, largest share of a GPU, MB of mem and lfs."""
        cdef int32_t at = self._position(position)
        cdef const rp_node *node = rp_at(&self.nodes, at)
        return {'cores': node.cores, 'gpus': rp_count(node.gpus), 'mem': node.mem, 'lfs': node.lfs,
                'share': <double>rp_largest_share(&self.nodes, at, ~<uint64_t>0) / UNITS}

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

    cdef int64_t _per_node(self, Shape shape) except -1:
        """Return the maximum number of ranks on an empty node."""
        if shape.epoch != self.epoch:
            limit = min(shape.ranks, shape.ranks_per_node or shape.ranks)
            shape.per_node = max([_empty_room(shape, kind, limit)
                                  for kind, up in zip(self.kinds, self.kind_up, strict=True) if up], default=0)
            shape.epoch = self.epoch
        return shape.per_node

    cdef Placement _new(self, Shape shape, int32_t ranks, int32_t parts, int64_t gpus):
        """Return an empty placement, with memory for the units of `gpus` GPUs unless that is negative."""
        cdef Placement placement = Placement.__new__(Placement)
        cdef size_t size = <size_t>parts * rp_part_size(self.nodes.words)
        cdef size_t more = 0 if gpus < 0 else (2 * <size_t>parts + <size_t>gpus) * sizeof(int64_t)
        placement.number = -1
        if size + more <= sizeof(placement.small):
            placement.parts = <char *>placement.small
        else:
            placement.parts = <char *>malloc(size + more)
            if placement.parts == NULL:
                raise MemoryError()
        if gpus >= 0:
            placement.amounts = <int64_t *>(placement.parts + size)
        placement.shape = shape
        placement.table = self.table
        placement.ranks = ranks
        placement.n_parts = parts
        placement.words = self.nodes.words
        if self.n_held == self.most_held:
            self._make_room()
        return placement

    def _make_room(self):
        cdef Py_ssize_t most = 2 * self.most_held + 64
        cdef PyObject **held = <PyObject **>realloc(self.held, most * sizeof(PyObject *))
        if held == NULL:
            raise MemoryError()
        self.held, self.most_held = held, most

    cdef void _hold(self, Placement placement) noexcept:
        Py_INCREF(placement)
        placement.number = <int32_t>self.n_held
        self.held[self.n_held] = <PyObject *>placement
        self.n_held += 1

    cdef void _fill(self, Placement placement, Shape shape, int32_t position, int32_t first,
                    int64_t count) noexcept nogil:
        """Take `count` parts, starting with `first`, from a node that has room for them."""
        cdef int64_t share = shape.share if shape.share else UNITS
        cdef int32_t which
        for which in range(first, first + <int32_t>count):
            rp_choose(&self.nodes, position, &shape.ask, part_of(placement, which))
            rp_take(&self.nodes, part_of(placement, which), share, NULL, shape.mem, shape.lfs)

    cdef int _give_back(self, Placement placement) except -1:
        cdef int64_t mem = 0, lfs = 0, share = 0
        cdef int64_t *units
        cdef int32_t which
        cdef rp_part *part
        if placement is None or placement.number < 0 or placement.table is not self.table:
            raise ResourceError('the placement is not held by this slot map: was it released before?')
        if placement.shape is not None:
            mem, lfs = placement.shape.mem, placement.shape.lfs
            share = placement.shape.share if placement.shape.share else UNITS
        units = units_of(placement)
        for which in range(placement.n_parts):
            part = part_of(placement, which)
            rp_index_expect(&self.index, part.position)
            if placement.amounts != NULL:
                mem, lfs = placement.amounts[2 * which], placement.amounts[2 * which + 1]
            rp_give(&self.nodes, part, share, units, mem, lfs)
            if units != NULL:
                units += rp_count(part.gpus)
            self._touch(part.position)
        self.n_held -= 1
        self.held[placement.number] = self.held[self.n_held]
        (<Placement>self.held[placement.number]).number = placement.number
        placement.number = -1
        Py_DECREF(placement)
        return 0

    cdef void _touch(self, int32_t position) noexcept:
        """Mark a position whose index entry is outdated."""
        if not rp_at(&self.nodes, position).dirty:
            rp_at(&self.nodes, position).dirty = True
            self.dirty[self.n_dirty] = position
            self.n_dirty += 1

    cdef void _settle(self) noexcept:
        """Update the index at all marked positions."""
        while self.n_dirty:
            self.n_dirty -= 1
            rp_at(&self.nodes, self.dirty[self.n_dirty]).dirty = False
            self._publish(self.dirty[self.n_dirty])

    cdef void _publish(self, int32_t position) noexcept:
        """Update the index and the totals with the state of the node."""
        cdef rp_node *node = rp_at(&self.nodes, position)
        cdef bint found = not (node.hidden or node.down or node.masked), idle = found and node.held == 0
        cdef int32_t cores = node.cores if found else -1, gpus = rp_count(node.gpus) if found else -1
        cdef int64_t share = rp_largest_share(&self.nodes, position, ~<uint64_t>0) if found else -1
        cdef int64_t mem = node.mem if found else -1, lfs = node.lfs if found else -1
        if cores != node.shown_cores or gpus != node.shown_gpus:
            self.free_cores += max(cores, 0) - max(node.shown_cores, 0)
            self.free_gpus += max(gpus, 0) - max(node.shown_gpus, 0)
            node.shown_cores, node.shown_gpus = cores, gpus
            rp_index_set_devices(&self.index, position, cores, gpus)
        if share != node.shown_share:
            node.shown_share = share
            rp_index_set_amount(&self.index, self.index.share, position, share)
        if mem != node.shown_mem:
            node.shown_mem = mem
            rp_index_set_amount(&self.index, self.index.mem, position, mem)
        if lfs != node.shown_lfs:
            node.shown_lfs = lfs
            rp_index_set_amount(&self.index, self.index.lfs, position, lfs)
        if idle != node.shown_idle:
            node.shown_idle = idle
            rp_index_set_idle(&self.index, position, idle)

    cdef int32_t _position(self, object position) except -1:
        if not isinstance(position, int) or not 0 <= position < self.nodes.count:
            raise ResourceError(f'position must be from 0 to {self.nodes.count - 1}, not {position!r}')
        return position

    def _mask(self, list positions, bint masked):
        for position in positions:
            rp_at(&self.nodes, <int32_t>position).masked = masked
            self._publish(position)

    def _mark(self, int32_t position, int hidden, int down):
        """Set whether the node is hidden and down; a negative value keeps the current one."""
        cdef rp_node *node = rp_at(&self.nodes, position)
        if hidden >= 0:
            node.hidden = hidden
        if down >= 0 and node.down != down:
            node.down = down
            self.kind_up[node.kind] += -1 if down else 1
            self.epoch = _next_epoch()
        self._publish(position)

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

    def _open(self, int32_t count, int32_t words, int32_t gpus, int32_t domains):
        self.dirty = <int32_t *>malloc((count + 1) * sizeof(int32_t))
        if (self.dirty == NULL or rp_nodes_open(&self.nodes, count, words, gpus, domains, UNITS) != 0
                or rp_index_open(&self.index, count, gpus) != 0):
            raise MemoryError()

    def _set_domain(self, int32_t number, list cores, list gpus):
        cdef int32_t index
        for index in cores:
            if index < 64 * self.nodes.words:
                self.nodes.domain_cores[<size_t>number * self.nodes.words + index // 64] |= <uint64_t>1 << (index % 64)
        for index in gpus:
            self.nodes.domain_gpus[number] |= <uint64_t>1 << index

    def _set_node(self, int32_t position, record):
        """Set the resources of a node; all that are not permanently occupied are free."""
        cdef rp_node *node = rp_at(&self.nodes, position)
        cdef int32_t word, gpu
        node.mem, node.lfs = record.mem, record.lfs
        for word in range(self.nodes.words):
            rp_free(&self.nodes, position)[word] = rp_usable(&self.nodes, position)[word] = \
                record.cores >> (64 * word) & 0xffff_ffff_ffff_ffff
            node.cores += rp_count(rp_free(&self.nodes, position)[word])
        for gpu, units in enumerate(record.gpus):
            rp_used(&self.nodes, position)[gpu] = UNITS - units
            node.gpus |= <uint64_t>(units == UNITS) << gpu
            node.gpus_usable |= <uint64_t>(units > 0) << gpu
        node.kind = -1
        self._set_kind(position, SlotKind(node.cores, record.gpus, record.mem, record.lfs))

    def _set_kind(self, int32_t position, kind):
        """Set the resources of the empty node."""
        cdef rp_node *node = rp_at(&self.nodes, position)
        if node.kind >= 0 and not node.down:
            self.kind_up[node.kind] -= 1
        node.kind = self.kinds.setdefault(kind, len(self.kinds))
        if node.kind == len(self.kind_up):
            self.kind_up.append(0)
        if not node.down:
            self.kind_up[node.kind] += 1
        self.epoch = _next_epoch()


cdef inline rp_need _need(Shape shape, int64_t ranks) noexcept nogil:
    """Return the resources of a node with room for that many ranks; for shares, with room for one."""
    return rp_need(ranks * shape.cores, ranks * shape.gpus, shape.share, ranks * shape.mem, ranks * shape.lfs)


def _empty_room(Shape shape, kind, limit):
    """Return how many ranks fit on an empty node of the kind, up to `limit`."""
    bounds = [limit]
    for has, asked in ((kind.cores, shape.cores), (kind.gpus.count(UNITS), shape.gpus), (kind.mem, shape.mem),
                       (kind.lfs, shape.lfs)):
        if asked:
            bounds.append(has // asked)
    if shape.share:
        bounds.append(sum([units // shape.share for units in kind.gpus]))
    return min(bounds)
