#!/bin/sh
#SBATCH -J my_job
#SBATCH -D /scratch/me/pilot.0000
#SBATCH --output=/scratch/me/pilot.0000/bootstrap_0.out
#SBATCH --error=/scratch/me/pilot.0000/bootstrap_0.err
#SBATCH --time=01:30:00
#SBATCH --partition=debug
#SBATCH --qos=high
#SBATCH --account=abc
#SBATCH --reservation=res
#SBATCH --nodes=2
#SBATCH --ntasks=128
#SBATCH --ntasks-per-node=64
#SBATCH --gpus-per-node=4
#SBATCH --mem=2048
#SBATCH --requeue

cd /scratch/me/pilot.0000 || exit 1
export RP_PILOT_SANDBOX=/scratch/me/pilot.0000
exec /bin/sh /scratch/me/pilot.0000/bootstrap_0.sh
