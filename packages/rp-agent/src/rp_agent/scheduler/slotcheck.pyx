"""Verification of the invariants of a slot map."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from rp_agent.scheduler.nodemap cimport (
    NodeMap,
    rp_at,
    rp_free,
    rp_index_flaw,
    rp_index_leaf,
    rp_largest_share,
    rp_node,
    rp_usable,
    rp_used,
)
from rp_agent.scheduler.placement cimport Placement, amounts_of, bit_indices, part_of, rp_part, units_of

from rp_api.resources.pool import UNITS as _UNITS
from rp_api.resources.pool import ensure


def check(NodeMap slots not None):
    """Verify that held and free resources add up to the resources of each node, and that the index matches.

    Raise `AssertionError` if not.
    """
    cdef int32_t position
    held = _held(slots)
    kinds = list(slots.kinds)
    up = [0] * len(kinds)
    totals = [0, 0]
    for position in range(slots.nodes.count):
        node = _node(slots, position)
        _check_node(node, held.get(position, {'cores': [], 'gpus': {}, 'mem': 0, 'lfs': 0, 'parts': 0}))
        _check_leaf(slots, position, node, totals)
        up[node['kind_number']] += not node['down']
    ensure(up == slots.kind_up, f'{slots.kind_up} nodes of each kind are up, not {up}')
    ensure(totals == [slots.free_cores, slots.free_gpus],
           f'{totals} cores and GPUs can be found, not {[slots.free_cores, slots.free_gpus]}')
    ensure(slots.n_dirty == 0, 'the index was not renewed')
    ensure(rp_index_flaw(&slots.index) == 0, f'tree node {rp_index_flaw(&slots.index)} contradicts its children')


def _held(NodeMap slots):
    """Return the resources held by all placements, by position."""
    cdef Py_ssize_t number
    cdef Placement placement
    found = {}
    for number in range(slots.n_held):
        placement = <Placement>slots.held[number]
        ensure(placement.number == number, 'the list of placements is broken')
        _add_parts(placement, found)
    return found


def _add_parts(Placement placement, dict found):
    cdef int32_t which
    cdef int64_t *units = units_of(placement)
    cdef rp_part *part
    for which in range(placement.n_parts):
        part = part_of(placement, which)
        node = found.setdefault(part.position, {'cores': [], 'gpus': {}, 'mem': 0, 'lfs': 0, 'parts': 0})
        node['cores'] += bit_indices(part.cores, placement.words)
        for gpu in bit_indices(&part.gpus, 1):
            if units != NULL:
                taken = units[0]
                units += 1
            else:
                taken = placement.shape.share if placement.shape.share else _UNITS
            node['gpus'][gpu] = node['gpus'].get(gpu, 0) + taken
        mem, lfs = amounts_of(placement, which)
        node['mem'] += mem
        node['lfs'] += lfs
        node['parts'] += 1


def _node(NodeMap slots, int32_t position):
    cdef const rp_node *node = rp_at(&slots.nodes, position)
    cdef int32_t words = slots.nodes.words, gpu
    return {'title': f'node {slots.table[position][0]}',
            'kind_number': node.kind, 'kind': list(slots.kinds)[node.kind],
            'free': bit_indices(rp_free(&slots.nodes, position), words),
            'usable': bit_indices(rp_usable(&slots.nodes, position), words),
            'cores': node.cores,
            'gpus': bit_indices(&node.gpus, 1), 'gpus_usable': bit_indices(&node.gpus_usable, 1),
            'used': [rp_used(&slots.nodes, position)[gpu] for gpu in range(slots.nodes.gpus)],
            'mem': node.mem, 'lfs': node.lfs, 'parts': node.held, 'down': node.down,
            'found': not (node.hidden or node.down), 'temporary': node.masked or node.dirty}


def _check_node(node, held):
    """Verify that free and held resources add up to the resources of the node, and that each is held once."""
    title, kind = node['title'], node['kind']
    cores = set(held['cores'])
    ensure(len(cores) == len(held['cores']), f'{title}: a core is held twice: {sorted(held["cores"])}')
    ensure(node['free'] == sorted(set(node['usable']) - cores), f'{title}: free are the cores {node["free"]}')
    ensure(node['cores'] == len(node['free']), f'{title}: {node["cores"]} cores are counted as free')
    ensure(kind.cores == len(node['usable']), f'{title}: {kind.cores} cores are counted as usable')
    for gpu, used in enumerate(node['used']):
        taken = held['gpus'].get(gpu, 0)
        ensure(taken <= used <= _UNITS, f'{title}: {used} units of GPU {gpu} are taken, {taken} held')
        if gpu in node['gpus_usable']:
            ensure(used - taken == _UNITS - kind.gpus[gpu], f'{title}: {used} units of GPU {gpu} taken, {taken} held')
        ensure((gpu in node['gpus']) == (used == 0 and gpu in node['gpus_usable']), f'{title}: is GPU {gpu} free?')
    for name in 'mem', 'lfs':
        ensure(node[name] >= 0 and node[name] + held[name] == getattr(kind, name),
               f'{title}: {node[name]} MB {name} are free, {held[name]} held')
    ensure(node['parts'] == held['parts'], f'{title}: {node["parts"]} parts are counted, {held["parts"]} held')
    ensure(not node['temporary'], f'{title}: is masked or was not renewed')


def _check_leaf(NodeMap slots, int32_t position, node, totals):
    """Verify that the index shows the free resources of a node, and add them to the totals, unless it is hidden."""
    cdef int32_t leaf = slots.index.leaves + position, gpus
    found, free_gpus = node['found'], len(node['gpus'])
    for gpus in range(slots.nodes.gpus + 1):
        ensure(rp_index_leaf(&slots.index, position, gpus) == (node['cores'] if found and gpus <= free_gpus else -1),
               f'{node["title"]}: wrong in the index for {gpus} GPUs')
    share = rp_largest_share(&slots.nodes, position, ~<uint64_t>0)
    expected = [share, node['mem'], node['lfs']] if found else [-1, -1, -1]
    ensure([slots.index.share[leaf], slots.index.mem[leaf], slots.index.lfs[leaf]] == expected,
           f'{node["title"]}: wrong amounts in the index')
    ensure(slots.index.run[leaf].longest == (found and node['parts'] == 0), f'{node["title"]}: is it idle?')
    if found:
        totals[0] += node['cores']
        totals[1] += free_gpus
