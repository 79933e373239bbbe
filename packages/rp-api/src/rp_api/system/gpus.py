"""Environment variables that make GPUs visible to a process, or hide them."""

from __future__ import annotations

VISIBLE_GPUS = {'CUDA': 'CUDA_VISIBLE_DEVICES', 'ROCm': 'ROCR_VISIBLE_DEVICES', 'Intel': 'ZE_AFFINITY_MASK'}
"""Names of the variables that make GPUs visible to a rank, by `gpu_type`."""

HIP_GPUS = 'HIP_VISIBLE_DEVICES'
"""Name of a variable whose numbers are positions in the list of `ROCR_VISIBLE_DEVICES`, where that is set."""

# Level Zero ignores an empty mask, and all numbers that no device has
NO_GPUS = {'CUDA_VISIBLE_DEVICES': '', 'ROCR_VISIBLE_DEVICES': '', 'ZE_AFFINITY_MASK': '65535'}
"""Variables that hide all GPUs from a rank without GPUs, which would otherwise see those of the job."""
