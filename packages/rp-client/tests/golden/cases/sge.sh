#!/bin/sh
#$ -S /bin/sh
#$ -N my_job
#$ -V
#$ -wd /scratch/me/pilot.0000
#$ -o /scratch/me/pilot.0000/bootstrap_0.out
#$ -e /scratch/me/pilot.0000/bootstrap_0.err
#$ -l h_rt=01:30:00
#$ -q debug
#$ -A abc
#$ -l h_vmem=32M,virtual_free=16M
#$ -l nvme
#$ -l a=1
#$ -l exclusive=true
#$ -pe MPI 128
#$ -r y
#$ -notify

cd /scratch/me/pilot.0000 || exit 1
export RP_PILOT_SANDBOX=/scratch/me/pilot.0000
exec /bin/sh /scratch/me/pilot.0000/bootstrap_0.sh
