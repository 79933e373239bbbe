#!/bin/sh
#flux: --job-name=pilot.0000
#flux: --cwd=/scratch/me/pilot.0000
#flux: --output=/scratch/me/pilot.0000/bootstrap_0.out
#flux: --error=/scratch/me/pilot.0000/bootstrap_0.err
#flux: --time-limit=10m
#flux: --queue=normal
#flux: --nslots=5
#flux: --cores-per-slot=3
#flux: --gpus-per-slot=1

cd /scratch/me/pilot.0000 || exit 1
export RP_PILOT_SANDBOX=/scratch/me/pilot.0000
exec /bin/sh /scratch/me/pilot.0000/bootstrap_0.sh
