/* The index of the slot map: a binary tree over the positions of the nodes, in plain arrays.
 *
 * Tree node 1 is the root, the children of node i are 2i and 2i + 1, and position p is the leaf `leaves` + p. For each
 * subtree the index holds
 *   best   for each number g of GPUs, the maximum of free cores on a node with at least g free GPUs (-1: no such node)
 *   share, mem, lfs   the maximum of the free share of a GPU, of free memory and of free storage on a node
 *   run    the number of idle positions at its front, at its end, and in the longest run
 * `best` is exact for requests of cores and whole GPUs: the search descends directly. The others are bounds, after
 * which the search may have to backtrack.
 */
#ifndef RP_SLOTINDEX_H
#define RP_SLOTINDEX_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { RP_LANES = 8 };

/* vectors of small integers for SIMD comparison; may_alias because elements are read through int16_t * */
typedef int16_t rp_lanes __attribute__((vector_size(2 * RP_LANES), may_alias));

typedef struct {
    int64_t cores, gpus, share, mem, lfs; /* minimum that a node must have free */
} rp_need;

typedef struct {
    int32_t head, tail, longest; /* idle nodes at the front, at the end, and in the longest run */
} rp_run;

typedef struct {
    int32_t leaves;  /* a power of two */
    int32_t vectors; /* of best, per tree node */
    rp_lanes *best;
    int64_t *share, *mem, *lfs;
    rp_run *run;
} rp_index;

static inline void rp_index_close(rp_index *index)
{
    free(index->best);
    free(index->share);
    free(index->mem);
    free(index->lfs);
    free(index->run);
    memset(index, 0, sizeof *index);
}

/* Open an index over `count` positions with empty leaves. Return 0, or -1 if there is no memory. */
static inline int rp_index_open(rp_index *index, int32_t count, int32_t gpus)
{
    memset(index, 0, sizeof *index);
    index->leaves = 1;
    while (index->leaves < count)
        index->leaves *= 2;
    index->vectors = gpus / RP_LANES + 1;
    size_t nodes = 2 * (size_t)index->leaves;
    index->best = malloc(nodes * (size_t)index->vectors * sizeof *index->best);
    index->share = malloc(nodes * sizeof *index->share);
    index->mem = malloc(nodes * sizeof *index->mem);
    index->lfs = malloc(nodes * sizeof *index->lfs);
    index->run = calloc(nodes, sizeof *index->run);
    if (!index->best || !index->share || !index->mem || !index->lfs || !index->run) {
        rp_index_close(index);
        return -1;
    }
    memset(index->best, 0xff, nodes * (size_t)index->vectors * sizeof *index->best);
    memset(index->share, 0xff, nodes * sizeof *index->share);
    memset(index->mem, 0xff, nodes * sizeof *index->mem);
    memset(index->lfs, 0xff, nodes * sizeof *index->lfs);
    return 0;
}

static inline rp_lanes rp_lanes_max(rp_lanes a, rp_lanes b)
{
    rp_lanes larger = a > b;
    return (a & larger) | (b & ~larger);
}

static inline int rp_lanes_equal(rp_lanes a, rp_lanes b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* Set the free cores and GPUs of the node at this position; -1 for both hides it. */
static inline void rp_index_set_devices(const rp_index *index, int32_t position, int cores, int gpus)
{
    int32_t vectors = index->vectors;
    for (int32_t v = 0; v < vectors; v++) {
        rp_lanes value;
        int32_t node = index->leaves + position;
        for (int lane = 0; lane < RP_LANES; lane++)
            value[lane] = (int16_t)(v * RP_LANES + lane <= gpus ? cores : -1);
        index->best[(size_t)node * vectors + v] = value;
        while ((node /= 2) > 0) {
            rp_lanes *place = index->best + (size_t)node * vectors + v;
            value = rp_lanes_max(index->best[2 * (size_t)node * vectors + v],
                                 index->best[(2 * (size_t)node + 1) * vectors + v]);
            if (rp_lanes_equal(*place, value))
                break;
            *place = value;
        }
    }
}

/* Set one of the amounts share, mem, lfs of a node. */
static inline void rp_index_set_amount(const rp_index *index, int64_t *tree, int32_t position, int64_t amount)
{
    int32_t node = index->leaves + position;
    while (node > 0 && tree[node] != amount) {
        tree[node] = amount;
        node /= 2;
        if (node > 0)
            amount = tree[2 * node] > tree[2 * node + 1] ? tree[2 * node] : tree[2 * node + 1];
    }
}

/* Join the runs of two adjacent subtrees with `width` positions each. */
static inline rp_run rp_run_join(rp_run left, rp_run right, int32_t width)
{
    rp_run both = {left.head == width ? width + right.head : left.head,
                   right.tail == width ? width + left.tail : right.tail,
                   left.longest > right.longest ? left.longest : right.longest};
    if (left.tail + right.head > both.longest)
        both.longest = left.tail + right.head;
    return both;
}

/* Set whether a node is idle (0 or 1). */
static inline void rp_index_set_idle(const rp_index *index, int32_t position, int32_t idle)
{
    int32_t node = index->leaves + position, width = 1;
    rp_run run = {idle, idle, idle};
    while (memcmp(&index->run[node], &run, sizeof run) != 0) {
        index->run[node] = run;
        node /= 2;
        if (node == 0)
            break;
        run = rp_run_join(index->run[2 * node], index->run[2 * node + 1], width);
        width *= 2;
    }
}

/* Return whether a node below this tree node may have the needed resources; for a leaf, the result is exact. */
static inline int rp_index_fits(const rp_index *index, int32_t node, const rp_need *need)
{
    const int16_t *best = (const int16_t *)(index->best + (size_t)node * index->vectors);
    return need->gpus < (int64_t)index->vectors * RP_LANES && best[need->gpus] >= need->cores
        && (need->share == 0 || index->share[node] >= need->share)
        && (need->mem == 0 || index->mem[node] >= need->mem)
        && (need->lfs == 0 || index->lfs[node] >= need->lfs);
}

/* Prefetch the entries of a node that will be updated: the index of many nodes exceeds the caches. */
static inline void rp_index_expect(const rp_index *index, int32_t position)
{
    int32_t node = index->leaves + position;
    for (int level = 0; level < 4 && node > 0; level++, node /= 2)
        __builtin_prefetch(index->best + (size_t)node * index->vectors);
    __builtin_prefetch(index->run + index->leaves + position);
}

/* Return the free cores that the index holds for a node, if it has that many free GPUs. */
static inline int rp_index_leaf(const rp_index *index, int32_t position, int32_t gpus)
{
    return ((const int16_t *)(index->best + ((size_t)index->leaves + position) * index->vectors))[gpus];
}

/* Return the first position, not before `from`, of a node with the needed resources; -1 if there is none. */
static inline int32_t rp_index_next(const rp_index *index, const rp_need *need, int32_t from)
{
    int32_t node = from == 0 ? 1 : index->leaves + from;
    if (from >= index->leaves)
        return -1;
    for (;;) {
        if (rp_index_fits(index, node, need)) {
            if (node >= index->leaves)
                return node - index->leaves;
            node *= 2;
        } else {
            while (node & 1) /* a right child or the root: continue at the parent */
                node /= 2;
            if (node == 0)
                return -1;
            node++;
        }
    }
}

/* Return the first position of the first run of `length` idle nodes; -1 if there is none. */
static inline int32_t rp_index_run(const rp_index *index, int32_t length)
{
    int32_t node = 1, start = 0, width = index->leaves;
    if (index->run[1].longest < length)
        return -1;
    while (node < index->leaves) {
        int32_t left = 2 * node, right = left + 1;
        width /= 2;
        if (index->run[left].longest >= length) {
            node = left;
        } else if (index->run[left].tail + index->run[right].head >= length) {
            return start + width - index->run[left].tail;
        } else {
            node = right;
            start += width;
        }
    }
    return start;
}

/* Return the first tree node that contradicts its children; 0 if there is none. */
static inline int32_t rp_index_flaw(const rp_index *index)
{
    int32_t width = index->leaves;
    for (int32_t node = 1; node < index->leaves; node++) {
        if ((node & (node - 1)) == 0)
            width /= 2; /* of the children on this level */
        size_t left = 2 * (size_t)node, right = left + 1;
        for (int32_t v = 0; v < index->vectors; v++) {
            rp_lanes value = rp_lanes_max(index->best[left * index->vectors + v], index->best[right * index->vectors + v]);
            if (!rp_lanes_equal(index->best[(size_t)node * index->vectors + v], value))
                return node;
        }
        const int64_t *trees[] = {index->share, index->mem, index->lfs};
        for (int t = 0; t < 3; t++)
            if (trees[t][node] != (trees[t][left] > trees[t][right] ? trees[t][left] : trees[t][right]))
                return node;
        rp_run run = rp_run_join(index->run[left], index->run[right], width);
        if (memcmp(&index->run[node], &run, sizeof run) != 0)
            return node;
    }
    return 0;
}

#endif
