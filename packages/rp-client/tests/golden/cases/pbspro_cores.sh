#!/bin/sh
#PBS -S /bin/sh
#PBS -N pilot.0000
#PBS -o /scratch/me/pilot.0000/bootstrap_0.out
#PBS -e /scratch/me/pilot.0000/bootstrap_0.err
#PBS -l walltime=00:10:00
#PBS -q normal
#PBS -l select=5:ncpus=2:ngpus=1:mem=684mb+2:ncpus=1:mem=342mb
#PBS -r n

cd /scratch/me/pilot.0000 || exit 1
export RP_PILOT_SANDBOX=/scratch/me/pilot.0000
exec /bin/sh /scratch/me/pilot.0000/bootstrap_0.sh
