#!/bin/sh
#BSUB -J pilot.0000
#BSUB -cwd /scratch/me/pilot.0000
#BSUB -o /scratch/me/pilot.0000/bootstrap_0.out
#BSUB -e /scratch/me/pilot.0000/bootstrap_0.err
#BSUB -W 0:10
#BSUB -q normal
#BSUB -n 12
#BSUB -rn

cd /scratch/me/pilot.0000 || exit 1
export RP_PILOT_SANDBOX=/scratch/me/pilot.0000
exec /bin/sh /scratch/me/pilot.0000/bootstrap_0.sh
