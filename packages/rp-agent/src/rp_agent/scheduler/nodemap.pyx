"""The nodes of a slot map: their free cores, GPUs, memory and storage, the index over them, and what is held.

Free resources are kept in bitmaps and counters (slotnodes.h). An index over the nodes (slotindex.h) finds the first
node, or the first run of idle nodes, with room for a request, without a scan of the others. Every placement is held
until it is released. A node that goes down, or a core that is blocked, while it is in use stays accounted for until
then, and is not used again.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from rp_agent.scheduler.placement cimport Placement, Shape, part_of, rp_part, rp_part_size, units_of

import cython

from rp_agent.scheduler.slotdata import SlotKind, read_indices, read_nodes
from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS as _UNITS

cdef int64_t UNITS = _UNITS
cdef int64_t _epochs = 0


cdef int64_t _next_epoch() noexcept:
    """Return a number that no slot map has used."""
    global _epochs
    _epochs += 1
    return _epochs


@cython.auto_pickle(False)
cdef class NodeMap:
    """The nodes of a pilot, with the methods of a slot map that place nothing; `SlotMap` says what `nodes` are."""

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

    @property
    def held_count(self):
        """The number of placements that are held."""
        return self.n_held

    def room(self, Shape shape not None, positions=None):
        """Return what is free on nodes that are available, at these positions or all.

        `ranks` is the number of ranks of the shape with room, `cores` and `gpus` are totals, `idle` counts idle nodes,
        and `most` has the most of each resource on one node.
        """
        cdef int64_t ranks = 0, limit = min(shape.ranks, shape.ranks_per_node or shape.ranks)
        cdef int64_t cores = 0, gpus = 0, idle = 0, most_cores = 0, most_gpus = 0, share = 0, mem = 0, lfs = 0
        cdef int32_t at, index, count = self.nodes.count if positions is None else len(positions)
        cdef const rp_node *node
        for index in range(count):
            at = index if positions is None else self._position(positions[index])
            node = rp_at(&self.nodes, at)
            if node.hidden or node.down:
                continue
            ranks += rp_room(&self.nodes, at, &shape.ask, limit)
            cores, gpus, idle = cores + node.cores, gpus + rp_count(node.gpus), idle + (node.held == 0)
            most_cores, most_gpus = max(most_cores, node.cores), max(most_gpus, rp_count(node.gpus))
            share = max(share, rp_largest_share(&self.nodes, at, ~<uint64_t>0))
            mem, lfs = max(mem, node.mem), max(lfs, node.lfs)
        return {'ranks': ranks, 'cores': cores, 'gpus': gpus, 'idle': idle, 'most': {
            'cores': most_cores, 'gpus': most_gpus, 'share': <double>share / UNITS, 'mem': mem, 'lfs': lfs}}

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
