/* The nodes of the slot map: free resources of each node as bitmaps and counters.
 *
 * Bit i of a bitmap of cores (several words) or GPUs (one word) is the core or GPU with the index i. A device is usable
 * unless it is blocked or missing. Shares of a GPU are counted in units; `used` of a GPU includes units that were taken
 * from the beginning, which are never released.
 */
#ifndef RP_SLOTNODES_H
#define RP_SLOTNODES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t mem, lfs;        /* free MB */
    uint64_t gpus;           /* usable and completely free */
    uint64_t gpus_usable;
    int32_t cores;           /* number of free cores */
    int32_t held;            /* number of placement parts on the node; it is idle with none */
    int32_t kind;            /* number of the kind: the resources of the empty node */
    uint8_t hidden, down, masked, dirty;
    /* values in the index; -1 if the node is not available */
    int32_t shown_cores, shown_gpus, shown_idle;
    int64_t shown_share, shown_mem, shown_lfs;
    uint64_t data[];         /* free cores; usable cores; used units of each GPU */
} rp_node;

typedef struct {
    int32_t count;           /* nodes */
    int32_t words;           /* of a bitmap of cores */
    int32_t gpus;            /* the highest index of a GPU, plus 1 */
    int32_t domains;
    int64_t units;           /* in a GPU */
    size_t stride;           /* bytes from one node to the next */
    char *node;
    uint64_t *domain_cores;  /* bitmap for each NUMA domain */
    uint64_t *domain_gpus;
} rp_nodes;

typedef struct {
    int32_t cores, gpus;     /* per rank; either whole GPUs, or a share of one */
    int64_t share, mem, lfs;
} rp_ask;

typedef struct {
    int32_t position;        /* of the node */
    uint64_t gpus;           /* bitmaps of the rank's devices */
    uint64_t cores[];
} rp_part;

static inline rp_node *rp_at(const rp_nodes *nodes, int32_t position)
{
    return (rp_node *)(nodes->node + nodes->stride * (size_t)position);
}

static inline uint64_t *rp_free(const rp_nodes *nodes, int32_t position)
{
    return rp_at(nodes, position)->data;
}

static inline uint64_t *rp_usable(const rp_nodes *nodes, int32_t position)
{
    return rp_at(nodes, position)->data + nodes->words;
}

static inline int64_t *rp_used(const rp_nodes *nodes, int32_t position)
{
    return (int64_t *)rp_at(nodes, position)->data + 2 * nodes->words;
}

static inline size_t rp_part_size(int32_t words)
{
    return sizeof(rp_part) + (size_t)words * sizeof(uint64_t);
}

static inline void rp_nodes_close(rp_nodes *nodes)
{
    free(nodes->node);
    free(nodes->domain_cores);
    free(nodes->domain_gpus);
    memset(nodes, 0, sizeof *nodes);
}

/* Open nodes without resources. Return 0, or -1 if there is no memory. */
static inline int rp_nodes_open(rp_nodes *nodes, int32_t count, int32_t words, int32_t gpus, int32_t domains,
                                int64_t units)
{
    memset(nodes, 0, sizeof *nodes);
    nodes->count = count;
    nodes->words = words;
    nodes->gpus = gpus;
    nodes->domains = domains;
    nodes->units = units;
    nodes->stride = sizeof(rp_node) + (2 * (size_t)words + (size_t)gpus) * sizeof(uint64_t);
    nodes->node = calloc((size_t)count + 1, nodes->stride);
    nodes->domain_cores = calloc((size_t)domains * words + 1, sizeof *nodes->domain_cores);
    nodes->domain_gpus = calloc((size_t)domains + 1, sizeof *nodes->domain_gpus);
    if (!nodes->node || !nodes->domain_cores || !nodes->domain_gpus) {
        rp_nodes_close(nodes);
        return -1;
    }
    for (int32_t position = 0; position < count; position++) {
        rp_node *node = rp_at(nodes, position);
        node->shown_cores = node->shown_gpus = -1;
        node->shown_share = node->shown_mem = node->shown_lfs = -1;
    }
    return 0;
}

/* Return the number of bits that are set; in portable arithmetic because plain x86-64 has no such instruction. */
static inline int32_t rp_count(uint64_t bits)
{
    bits -= bits >> 1 & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (int32_t)(bits * 0x0101010101010101u >> 56);
}

static inline int32_t rp_lowest(uint64_t bits)
{
    return __builtin_ctzll(bits);
}

/* Return the `count` lowest bits that are set; there must be as many. */
static inline uint64_t rp_low_bits(uint64_t bits, int32_t count)
{
    uint64_t rest = bits;
    while (count-- > 0)
        rest &= rest - 1;
    return bits ^ rest;
}

/* Return the free units of the least used GPU in `among`. */
static inline int64_t rp_largest_share(const rp_nodes *nodes, int32_t position, uint64_t among)
{
    const rp_node *node = rp_at(nodes, position);
    const int64_t *used = rp_used(nodes, position);
    int64_t largest = 0;
    if (node->gpus & among)
        return nodes->units;
    for (uint64_t rest = node->gpus_usable & among; rest; rest &= rest - 1) {
        int64_t left = nodes->units - used[rp_lowest(rest)];
        largest = left > largest ? left : largest;
    }
    return largest;
}

/* Return the number of ranks that fit on the node, up to `limit`. */
static inline int64_t rp_room(const rp_nodes *nodes, int32_t position, const rp_ask *ask, int64_t limit)
{
    const rp_node *node = rp_at(nodes, position);
    if (ask->cores && node->cores / ask->cores < limit)
        limit = node->cores / ask->cores;
    if (ask->gpus && rp_count(node->gpus) / ask->gpus < limit)
        limit = rp_count(node->gpus) / ask->gpus;
    if (ask->mem && node->mem / ask->mem < limit)
        limit = node->mem / ask->mem;
    if (ask->lfs && node->lfs / ask->lfs < limit)
        limit = node->lfs / ask->lfs;
    if (ask->share) {
        const int64_t *used = rp_used(nodes, position);
        int64_t found = 0;
        for (uint64_t rest = node->gpus_usable; rest && found < limit; rest &= rest - 1)
            found += (nodes->units - used[rp_lowest(rest)]) / ask->share;
        limit = found < limit ? found : limit;
    }
    return limit;
}

/* Return whether the domain has the free cores of a rank and, if `gpus` is set, its GPUs. */
static inline int rp_domain_has(const rp_nodes *nodes, int32_t position, int32_t domain, const rp_ask *ask, int gpus)
{
    const uint64_t *free = rp_free(nodes, position);
    const uint64_t *within = nodes->domain_cores + (size_t)domain * nodes->words;
    uint64_t among = nodes->domain_gpus[domain];
    int32_t cores = 0;
    if (gpus && ask->gpus && rp_count(rp_at(nodes, position)->gpus & among) < ask->gpus)
        return 0;
    if (gpus && ask->share && rp_largest_share(nodes, position, among) < ask->share)
        return 0;
    for (int32_t word = 0; word < nodes->words && cores < ask->cores; word++)
        cores += rp_count(free[word] & within[word]);
    return cores >= ask->cores;
}

/* Return the NUMA domain for a rank: the first with its cores and GPUs, else the first with its cores, else -1. */
static inline int32_t rp_domain(const rp_nodes *nodes, int32_t position, const rp_ask *ask)
{
    for (int gpus = ask->gpus || ask->share; gpus >= 0; gpus--)
        for (int32_t domain = 0; domain < nodes->domains; domain++)
            if (rp_domain_has(nodes, position, domain, ask, gpus))
                return domain;
    return -1;
}

/* Return the GPU for a rank with a share: the most used one in `among` with room for it, which must exist. */
static inline uint64_t rp_share_of(const rp_nodes *nodes, int32_t position, uint64_t among, int64_t share)
{
    const int64_t *used = rp_used(nodes, position);
    int64_t fullest = -1;
    uint64_t chosen = 0;
    for (uint64_t rest = rp_at(nodes, position)->gpus_usable & among; rest; rest &= rest - 1) {
        int64_t taken = used[rp_lowest(rest)];
        if (taken > fullest && nodes->units - taken >= share) {
            fullest = taken;
            chosen = rest & -rest;
        }
    }
    return chosen;
}

/* Choose cores and GPUs for one rank, for which there must be room. */
static inline void rp_choose(const rp_nodes *nodes, int32_t position, const rp_ask *ask, rp_part *part)
{
    const uint64_t *free = rp_free(nodes, position);
    const rp_node *node = rp_at(nodes, position);
    int32_t domain = nodes->domains ? rp_domain(nodes, position, ask) : -1, missing = ask->cores;
    for (int32_t word = 0; word < nodes->words; word++) {
        uint64_t bits = free[word];
        if (domain >= 0)
            bits &= nodes->domain_cores[(size_t)domain * nodes->words + word];
        int32_t count = missing ? rp_count(bits) : 0;
        part->cores[word] = count > missing ? rp_low_bits(bits, missing) : missing ? bits : 0;
        missing -= count > missing ? missing : count;
    }
    uint64_t among = ~(uint64_t)0, near = domain >= 0 ? nodes->domain_gpus[domain] : among;
    part->position = position;
    part->gpus = 0;
    if (ask->gpus)
        part->gpus = rp_low_bits(node->gpus & (rp_count(node->gpus & near) >= ask->gpus ? near : among), ask->gpus);
    else if (ask->share)
        part->gpus = rp_share_of(nodes, position, rp_largest_share(nodes, position, near) >= ask->share ? near : among,
                                 ask->share);
}

/* Take a part, with `share` units of each of its GPUs, or the numbers in `units`. */
static inline void rp_take(const rp_nodes *nodes, const rp_part *part, int64_t share, const int64_t *units, int64_t mem,
                           int64_t lfs)
{
    rp_node *node = rp_at(nodes, part->position);
    uint64_t *free = rp_free(nodes, part->position);
    int64_t *used = rp_used(nodes, part->position);
    for (int32_t word = 0; word < nodes->words; word++) {
        if (part->cores[word]) {
            free[word] &= ~part->cores[word];
            node->cores -= rp_count(part->cores[word]);
        }
    }
    for (uint64_t rest = part->gpus; rest; rest &= rest - 1)
        used[rp_lowest(rest)] += units ? *units++ : share;
    node->gpus &= ~part->gpus;
    node->mem -= mem;
    node->lfs -= lfs;
    node->held++;
}

/* Release a part; devices that were blocked meanwhile do not become free. */
static inline void rp_give(const rp_nodes *nodes, const rp_part *part, int64_t share, const int64_t *units, int64_t mem,
                           int64_t lfs)
{
    rp_node *node = rp_at(nodes, part->position);
    uint64_t *free = rp_free(nodes, part->position);
    const uint64_t *usable = rp_usable(nodes, part->position);
    int64_t *used = rp_used(nodes, part->position);
    for (int32_t word = 0; word < nodes->words; word++) {
        uint64_t bits = part->cores[word] & usable[word];
        if (bits) {
            free[word] |= bits;
            node->cores += rp_count(bits);
        }
    }
    for (uint64_t rest = part->gpus; rest; rest &= rest - 1) {
        int32_t gpu = rp_lowest(rest);
        used[gpu] -= units ? *units++ : share;
        if (used[gpu] == 0)
            node->gpus |= rest & -rest & node->gpus_usable;
    }
    node->mem += mem;
    node->lfs += lfs;
    node->held--;
}

#endif
