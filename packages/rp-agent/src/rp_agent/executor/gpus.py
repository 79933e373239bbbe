"""Use of GPUs: utilisation and memory in use, from NVML or ROCm SMI, the libraries of their drivers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

Use = tuple[float, int]
"""Utilisation from 0 to 1, and bytes of memory in use."""

_NVML, _ROCM = 'libnvidia-ml.so.1', 'librocm_smi64.so'


class Gpus:
    """The GPUs of this host; `load` loads a library of that name."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self._read: Callable[[str], Use | None] = lambda name: None
        for name, make in ((_NVML, _Nvml), (_ROCM, _Rocm)):
            try:
                self._read = make(load(name)).read
                break
            except (OSError, AttributeError):   # there is no such library, or it is too old
                continue

    def usage(self, names: Sequence[str]) -> Use | None:
        """Return the mean utilisation and all memory in use of GPUs; None if that of one is not known.

        `names` are those that make the GPUs visible to programs: numbers, or UUIDs of NVIDIA's.
        """
        found = [self._read(name) for name in names]
        known = [use for use in found if use is not None]
        if not known or len(known) < len(found):
            return None
        return sum(share for share, _ in known) / len(known), sum(memory for _, memory in known)


class _Nvml:
    def __init__(self, library: Any) -> None:
        self._library = library
        if library.nvmlInit_v2() != 0:
            raise OSError('NVML finds no driver')

    def read(self, name: str) -> Use | None:
        library, device = self._library, ctypes.c_void_p()
        if name.isdecimal():
            missing = library.nvmlDeviceGetHandleByIndex_v2(int(name), ctypes.byref(device))
        else:
            missing = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(device))
        rates, memory = (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()   # GPU and memory; total, free and used
        if (missing or library.nvmlDeviceGetUtilizationRates(device, rates)
                or library.nvmlDeviceGetMemoryInfo(device, memory)):
            return None
        return rates[0] / 100, memory[2]


class _Rocm:
    def __init__(self, library: Any) -> None:
        self._library = library
        if library.rsmi_init(ctypes.c_uint64(0)) != 0:
            raise OSError('ROCm SMI finds no driver')

    def read(self, name: str) -> Use | None:
        if not name.isdecimal():
            return None
        busy, used = ctypes.c_uint32(), ctypes.c_uint64()
        if (self._library.rsmi_dev_busy_percent_get(int(name), ctypes.byref(busy))
                or self._library.rsmi_dev_memory_usage_get(int(name), 0, ctypes.byref(used))):
            return None
        return busy.value / 100, used.value
