/* Passes a message of 8 MB, which libraries do not send in pieces, from rank 0 to the last; each writes what it got. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE (8 << 20)

int main(int argc, char **argv)
{
    int rank, ranks;
    char *message = malloc(SIZE);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    memset(message, 'x', SIZE);
    if (rank > 0)
        MPI_Recv(message, SIZE, MPI_CHAR, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    message[SIZE - 1] = 'a' + rank;
    if (rank < ranks - 1)
        MPI_Send(message, SIZE, MPI_CHAR, rank + 1, 0, MPI_COMM_WORLD);
    printf("rank %d of %d in the container: %d\n", rank, ranks, access("/etc/of-the-image", R_OK) == 0);
    MPI_Finalize();
    return 0;
}
