#!/bin/sh
#flux: --job-name=pilot.0000
#flux: --cwd=/scratch/me/pilot.0000
#flux: --output=/scratch/me/pilot.0000/bootstrap_0.out
#flux: --error=/scratch/me/pilot.0000/bootstrap_0.err
#flux: --time-limit=90m
#flux: --queue=pbatch
#flux: --bank=abc
#flux: --nodes=2
#flux: --exclusive

cd /scratch/me/pilot.0000 || exit 1
export RP_PILOT_SANDBOX=/scratch/me/pilot.0000
exec /bin/sh /scratch/me/pilot.0000/bootstrap_0.sh
