#!/bin/sh
#BSUB -J my_job
#BSUB -cwd /scratch/me/pilot.0000
#BSUB -o /scratch/me/pilot.0000/bootstrap_0.out
#BSUB -e /scratch/me/pilot.0000/bootstrap_0.err
#BSUB -W 1:30
#BSUB -q debug
#BSUB -P abc
#BSUB -nnodes 2
#BSUB -alloc_flags "nvme a=1 smt1"
#BSUB -R "rusage[mem=2048MB]"
#BSUB -x
#BSUB -rn

cd /scratch/me/pilot.0000 || exit 1
export RP_PILOT_SANDBOX=/scratch/me/pilot.0000
exec /bin/sh /scratch/me/pilot.0000/bootstrap_0.sh
