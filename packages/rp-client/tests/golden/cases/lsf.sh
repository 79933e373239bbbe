#!/bin/sh
#BSUB -J my_job
#BSUB -cwd /scratch/me/pilot.0000
#BSUB -o /scratch/me/pilot.0000/bootstrap_0.out
#BSUB -e /scratch/me/pilot.0000/bootstrap_0.err
#BSUB -W 1:30
#BSUB -q debug
#BSUB -P abc
#BSUB -U res
#BSUB -n 128
#BSUB -R "span[ptile=64]"
#BSUB -gpu "num=4"
#BSUB -R nvme
#BSUB -R a=1
#BSUB -R "rusage[mem=2048MB]"
#BSUB -x
#BSUB -r

cd /scratch/me/pilot.0000 || exit 1
export RP_PILOT_SANDBOX=/scratch/me/pilot.0000
exec /bin/sh /scratch/me/pilot.0000/bootstrap_0.sh
