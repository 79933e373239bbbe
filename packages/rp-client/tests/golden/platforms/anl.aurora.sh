#!/bin/sh
#PBS -S /bin/sh
#PBS -N pilot.0000
#PBS -o /scratch/me/pilot.0000/bootstrap_0.out
#PBS -e /scratch/me/pilot.0000/bootstrap_0.err
#PBS -l walltime=01:30:00
#PBS -q prod
#PBS -A abc
#PBS -l select=2:ncpus=104
#PBS -l filesystems=home:flare
#PBS -l place=scatter
#PBS -r n

cd /scratch/me/pilot.0000 || exit 1
export RP_PILOT_SANDBOX=/scratch/me/pilot.0000
exec /bin/sh /scratch/me/pilot.0000/bootstrap_0.sh
