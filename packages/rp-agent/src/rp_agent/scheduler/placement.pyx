"""`Shape`, the request to the slot map, and `Placement`, its result."""

from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

import cython

from rp_agent.scheduler.slotdata import whole_number
from rp_api.errors import ResourceError
from rp_api.resources.pool import UNITS as _UNITS
from rp_api.resources.pool import to_units

cdef int64_t UNITS = _UNITS


@cython.final
@cython.auto_pickle(False)
cdef class Shape:
    """A request for `ranks` ranks, each with cores (hardware threads), GPUs, and MB of memory and storage.

    `gpus` is a number of whole GPUs, or a share of one GPU if it is below 1. At most `ranks_per_node` ranks are placed
    on a node; 0 is no limit. Shapes are immutable, and equal if their values are.
    """

    def __cinit__(self, ranks=1, cores=1, gpus=0.0, mem=0, lfs=0, ranks_per_node=0):
        self.ranks = <int32_t>whole_number('ranks', ranks, 1, INT_MAX)
        self.cores = <int32_t>whole_number('cores', cores, 0, INT_MAX)
        self.mem = whole_number('mem', mem, 0, INT_MAX)
        self.lfs = whole_number('lfs', lfs, 0, INT_MAX)
        self.ranks_per_node = <int32_t>whole_number('ranks_per_node', ranks_per_node, 0, INT_MAX)
        if not isinstance(gpus, (int, float)) or isinstance(gpus, bool) or not 0 <= gpus <= INT_MAX \
                or (gpus > 1 and gpus != int(gpus)):
            raise ResourceError(f'gpus must be a whole number, or a share below 1, not {gpus!r}')
        if 0 < gpus < 1:
            self.share = max(1, to_units(gpus))
        else:
            self.gpus = <int32_t>gpus
        self.ask = rp_ask(self.cores, self.gpus, self.share, self.mem, self.lfs)
        self.hash = hash(self._key())

    def _key(self):
        return self.ranks, self.cores, self.gpus, self.share, self.mem, self.lfs, self.ranks_per_node

    def __hash__(self):
        return self.hash

    def __eq__(self, other):
        cdef Shape that
        if not isinstance(other, Shape):
            return NotImplemented
        that = <Shape>other
        return (self.hash == that.hash and self.ranks == that.ranks and self.cores == that.cores
                and self.gpus == that.gpus and self.share == that.share and self.mem == that.mem
                and self.lfs == that.lfs and self.ranks_per_node == that.ranks_per_node)

    def __reduce__(self):
        gpus = <double>self.share / UNITS if self.share else self.gpus
        return Shape, (self.ranks, self.cores, gpus, self.mem, self.lfs, self.ranks_per_node)

    def __repr__(self):
        _, (ranks, cores, gpus, mem, lfs, per_node) = self.__reduce__()
        return f'Shape({ranks=}, {cores=}, {gpus=}, {mem=}, {lfs=}, ranks_per_node={per_node})'


cdef char *_put_number(char *end, int32_t number) noexcept nogil:
    """Write a number of at most ten digits; return the new end."""
    cdef char[10] digits
    cdef int count = 0
    while True:
        digits[count] = <char>(c'0' + number % 10)
        count += 1
        number //= 10
        if number == 0:
            break
    while count:
        count -= 1
        end[0] = digits[count]
        end += 1
    return end


cdef char *_put_ranges(char *end, const uint64_t *bits, int32_t words) noexcept nogil:
    """Write the indices of the bits that are set, consecutive ones as ranges; return the new end."""
    cdef int32_t index = 0, first
    cdef uint64_t rest
    cdef bint any_yet = False
    while index < 64 * words:
        rest = bits[index // 64] >> (index % 64)
        if rest == 0:
            index += 64 - index % 64
            continue
        first = index = index + rp_lowest(rest)
        while index < 64 * words and bits[index // 64] >> (index % 64) & 1:
            index += 1
        if any_yet:
            end[0] = c'+'
            end += 1
        any_yet = True
        end = _put_number(end, first)
        if index - 1 > first:
            end[0] = c'-'
            end = _put_number(end + 1, index - 1)
    return end


@cython.final
@cython.auto_pickle(False)
@cython.no_gc
@cython.freelist(256)
cdef class Placement:
    """The resources of one task, created by a slot map. `shape` is None for explicit slots."""

    def __init__(self):
        raise TypeError('a Placement is made by a SlotMap')

    def __dealloc__(self):
        if self.parts != <char *>self.small:
            free(self.parts)

    @property
    def held(self):
        """True until the placement is released."""
        return self.number >= 0

    def nodes(self):
        """Return the positions of the nodes in use, in the order of the ranks."""
        return list(dict.fromkeys([part_of(self, which).position for which in range(self.n_parts)]))

    def cores_of_rank(self, int32_t rank):
        """Return the core indices of a rank; empty if there is no such rank."""
        if not 0 <= rank < self.ranks:
            return ()
        return tuple(bit_indices(part_of(self, rank).cores, self.words))

    def slots(self):
        """Return new plain data of the ranks' slots; works after the release as well."""
        cdef int32_t which
        cdef int64_t *units = units_of(self)
        cdef int64_t share = 0 if self.shape is None else self.shape.share
        cdef rp_part *part
        found = []
        for which in range(self.ranks):
            part = part_of(self, which)
            gpus = []
            for gpu in bit_indices(&part.gpus, 1):
                if units != NULL:
                    share = units[0]
                    units += 1
                gpus.append({'index': gpu, 'occupation': <double>share / UNITS if 0 < share < UNITS else 1.0})
            index, name = self.table[part.position]
            mem, lfs = amounts_of(self, which)
            found.append({
                'node_index': index, 'node_name': name,
                'cores': [{'index': core, 'occupation': 1.0} for core in bit_indices(part.cores, self.words)],
                'gpus': gpus, 'lfs': lfs, 'mem': mem, 'version': 1})
        return found

    def trace(self):
        """Return the slots in the short form of traces (`rp_profiling.write.slots`)."""
        cdef int32_t which
        cdef int64_t *units = units_of(self)
        cdef int64_t share = 0 if self.shape is None else self.shape.share
        cdef rp_part *part
        cdef size_t room = 16 * 64 * <size_t>(self.words + 1)   # enough for all indices of a rank
        cdef char *text = <char *>malloc(room)
        cdef char *end
        cdef list ranks = []
        if text == NULL:
            raise MemoryError('no memory for the slots of a trace')
        try:
            for which in range(self.ranks):
                part = part_of(self, which)
                end = _put_number(text, self.table[part.position][0])
                end[0] = c':'
                end = _put_ranges(end + 1, part.cores, self.words)
                end[0] = c':'
                end += 1
                if not (units != NULL or 0 < share < UNITS):
                    end = _put_ranges(end, &part.gpus, 1)
                ranks.append(text[:end - text].decode('ascii'))
                if units != NULL or 0 < share < UNITS:
                    gpus = []
                    for gpu in bit_indices(&part.gpus, 1):
                        if units != NULL:
                            share = units[0]
                            units += 1
                        gpus.append(f'{gpu}={<double>share / UNITS:g}' if 0 < share < UNITS else f'{gpu}')
                    ranks[which] += '+'.join(gpus)
        finally:
            free(text)
        return ranks[0] if self.ranks == 1 else ' '.join(ranks)
