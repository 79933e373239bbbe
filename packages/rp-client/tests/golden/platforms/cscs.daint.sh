#!/bin/sh
#SBATCH -J pilot.0000
#SBATCH -D /scratch/me/pilot.0000
#SBATCH --output=/scratch/me/pilot.0000/bootstrap_0.out
#SBATCH --error=/scratch/me/pilot.0000/bootstrap_0.err
#SBATCH --time=01:30:00
#SBATCH --partition=normal
#SBATCH --account=abc
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
#SBATCH --no-kill
#SBATCH --no-requeue

cd /scratch/me/pilot.0000 || exit 1
export RP_PILOT_SANDBOX=/scratch/me/pilot.0000
exec /bin/sh /scratch/me/pilot.0000/bootstrap_0.sh
