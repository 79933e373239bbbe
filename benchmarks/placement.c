/* What the slot map is measured against: bitmaps of free cores and GPUs on each node, scanned from the first node.
 *
 *     cc -O2 -o placement placement.c && ./placement NODES TASKS_FILE EVENTS
 *
 * A line of the file is a task: ranks, cores and GPUs of each rank. Ranks go on the first nodes that have room for any.
 * Prints how many tasks were placed, and per second of processor time: placements while filling, searches of the full machine for what
 * has no room, and pairs of a release and an attempt to place the next task. Exits with 1 if something went wrong.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CORES = 42, GPUS = 6, MOST_RANKS = 48 };

typedef struct { uint64_t cores; uint8_t gpus, free_cores, free_gpus; } node_t;
typedef struct { int node; uint64_t cores; uint8_t gpus; } slot_t;
typedef struct { int ranks, cores, gpus; } task_t;
typedef struct { const task_t *task; slot_t slots[MOST_RANKS]; } placement_t;

static node_t *nodes;
static int n_nodes;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static uint64_t lowest(uint64_t bits, int count)
{
    uint64_t rest = bits;
    while (count--)
        rest &= rest - 1;
    return bits ^ rest;
}

static void release(const slot_t *slots, int count, const task_t *task)
{
    for (int i = 0; i < count; i++) {
        node_t *node = &nodes[slots[i].node];
        node->cores |= slots[i].cores;
        node->gpus |= slots[i].gpus;
        node->free_cores = (uint8_t)(node->free_cores + task->cores);
        node->free_gpus = (uint8_t)(node->free_gpus + task->gpus);
    }
}

static int place(const task_t *task, placement_t *placement)
{
    int placed = 0;
    placement->task = task;
    for (int i = 0; i < n_nodes && placed < task->ranks; i++) {
        node_t *node = &nodes[i];
        while (placed < task->ranks && node->free_cores >= task->cores && node->free_gpus >= task->gpus) {
            slot_t *slot = &placement->slots[placed++];
            slot->node = i;
            slot->cores = lowest(node->cores, task->cores);
            slot->gpus = (uint8_t)lowest(node->gpus, task->gpus);
            node->cores ^= slot->cores;
            node->gpus ^= slot->gpus;
            node->free_cores = (uint8_t)(node->free_cores - task->cores);
            node->free_gpus = (uint8_t)(node->free_gpus - task->gpus);
        }
    }
    if (placed == task->ranks)
        return 1;
    release(placement->slots, placed, task);
    return 0;
}

int main(int argc, char **argv)
{
    static task_t tasks[1 << 20];
    if (argc != 4)
        return 2;
    n_nodes = atoi(argv[1]);
    FILE *file = fopen(argv[2], "r");
    int count = 0, events = atoi(argv[3]), placed = 0, failed = 0, done = 0;
    if (!file || !(nodes = malloc(sizeof *nodes * (size_t)n_nodes)))
        return 1;
    while (count < 1 << 20 && fscanf(file, "%d %d %d", &tasks[count].ranks, &tasks[count].cores, &tasks[count].gpus) == 3)
        count++;
    for (int i = 0; i < n_nodes; i++)
        nodes[i] = (node_t){((uint64_t)1 << CORES) - 1, (1 << GPUS) - 1, CORES, GPUS};
    placement_t *held = malloc(sizeof *held * (size_t)(count + 1));
    const task_t **refused = malloc(sizeof *refused * (size_t)(count + 1));

    double begin = now();
    for (int i = 0; i < count; i++) {
        if (place(&tasks[i], &held[placed]))
            placed++;
        else
            refused[failed++] = &tasks[i];
    }
    double fill = placed / (now() - begin);

    begin = now();
    for (int i = 0; failed && i < events; i++)
        done += place(refused[i % failed], &held[placed]);
    double fail = failed ? events / (now() - begin) : 0;

    int filled = placed;
    unsigned state = 1;
    begin = now();
    for (int i = 0; i < events; i++) {
        state = state * 1664525u + 1013904223u;
        int chosen = (int)((state >> 8) % (unsigned)placed--);
        release(held[chosen].slots, held[chosen].task->ranks, held[chosen].task);
        held[chosen] = held[placed];
        placed += place(&tasks[i % count], &held[placed]);
    }
    double churn = events / (now() - begin);
    printf("%d %.0f %.0f %.0f\n", filled, fill, fail, churn);
    return done != 0;
}
