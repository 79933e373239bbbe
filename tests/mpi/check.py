"""What a rank of an MPI program sees, as check.c writes it."""

import os

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
node = os.environ.get('SLURMD_NODENAME') or os.uname().nodename
cpus = ','.join(map(str, sorted(os.sched_getaffinity(0))))
with open(f'rank.{world.rank}', 'w', encoding='ascii') as file:
    print(world.rank, world.size, total, node, cpus, os.environ['RP_RANK'], os.environ['RP_RANKS'], file=file)
