/* What a rank of an MPI program sees, in the file rank.<number> of its working directory.
 *
 * One line: rank, size, sum of all ranks, node, CPUs that it may use (0,1,...), RP_RANK, RP_RANKS. Arguments: `fail N` ends rank
 * N with exit code 7 after that, `abort N` with MPI_Abort and 5; then the others wait in a barrier. `wait` has all of them
 * wait for ever.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_down(int rank, int size, int sum)
{
    char name[32], node[256] = "", cpus[4096] = "";
    cpu_set_t mask;
    FILE *file;

    gethostname(node, sizeof node - 1);
    if (getenv("SLURMD_NODENAME"))
        snprintf(node, sizeof node, "%s", getenv("SLURMD_NODENAME"));
    sched_getaffinity(0, sizeof mask, &mask);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mask))
            snprintf(cpus + strlen(cpus), sizeof cpus - strlen(cpus), "%s%d", *cpus ? "," : "", cpu);
    snprintf(name, sizeof name, "rank.%d", rank);
    if (!(file = fopen(name, "w")))
        exit(3);
    fprintf(file, "%d %d %d %s %s %s %s\n", rank, size, sum, node, cpus, getenv("RP_RANK"), getenv("RP_RANKS"));
    fclose(file);
}

int main(int argc, char **argv)
{
    int rank, size, sum, who = argc > 2 ? atoi(argv[2]) : -1;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    write_down(rank, size, sum);
    if (argc > 1 && !strcmp(argv[1], "wait"))
        for (;;)
            pause();
    if (argc > 1 && rank == who) {
        if (!strcmp(argv[1], "abort"))
            MPI_Abort(MPI_COMM_WORLD, 5);
        _exit(7);
    }
    if (argc > 1)
        for (;;)
            pause();
    MPI_Finalize();
    return 0;
}
