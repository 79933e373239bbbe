#!/bin/sh
#$ -S /bin/sh
#$ -N pilot.0000
#$ -V
#$ -wd /scratch/me/pilot.0000
#$ -o /scratch/me/pilot.0000/bootstrap_0.out
#$ -e /scratch/me/pilot.0000/bootstrap_0.err
#$ -l h_rt=00:10:00
#$ -q normal
#$ -pe MPI 12
#$ -r n
#$ -notify

cd /scratch/me/pilot.0000 || exit 1
export RP_PILOT_SANDBOX=/scratch/me/pilot.0000
exec /bin/sh /scratch/me/pilot.0000/bootstrap_0.sh
