"""GPU load through the library of the CUDA driver, which is present on every machine with an NVIDIA GPU.

The work fills a buffer in GPU memory repeatedly: this requires no compiler, runtime or package.
"""

from __future__ import annotations

import ctypes
import time

from rp_agent.synthetic.work import NoGpu

LIBRARY = 'libcuda.so.1'
BUFFER = 256 << 20
FILLS = 64
"""Fills of the buffer between two readings of the clock: tens of milliseconds."""


class Gpu:
    """One GPU visible to this process (`CUDA_VISIBLE_DEVICES`), with a buffer in its memory."""

    def __init__(self, index: int, size: int = BUFFER) -> None:
        self._cuda = _library()
        self._size = size
        self._context, self._buffer = ctypes.c_void_p(), ctypes.c_uint64()
        self._call('cuDevicePrimaryCtxRetain', ctypes.byref(self._context), index)
        self._call('cuCtxSetCurrent', self._context)
        self._call('cuMemAlloc_v2', ctypes.byref(self._buffer), ctypes.c_size_t(size))

    def work_until(self, end: float) -> int:
        """Fill the buffer at least once, until `time.monotonic()` is `end`; return the number of bytes written."""
        self._call('cuCtxSetCurrent', self._context)   # the context is set per thread
        filled = 0
        while not filled or time.monotonic() < end:
            for number in range(FILLS):
                self._call('cuMemsetD32_v2', self._buffer, ctypes.c_uint(number), ctypes.c_size_t(self._size // 4))
            self._call('cuCtxSynchronize')
            filled += FILLS * self._size
        return filled

    def _call(self, name: str, *arguments: object) -> None:
        _check(self._cuda, name, getattr(self._cuda, name)(*arguments))


def visible_gpus() -> int:
    """Return the number of GPUs that this process may use; raise `NoGpu` without a driver."""
    count = ctypes.c_int()
    cuda = _library()
    _check(cuda, 'cuDeviceGetCount', cuda.cuDeviceGetCount(ctypes.byref(count)))
    return count.value


def open_gpus(count: int) -> list[Gpu]:
    """Return the first `count` GPUs; raise `NoGpu` if there are fewer."""
    found = visible_gpus()
    if found < count:
        raise NoGpu(f'{count} GPUs are requested, but this process can use {found}')
    return [Gpu(index) for index in range(count)]


def _library() -> ctypes.CDLL:
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NoGpu(f'this host has no NVIDIA driver: {error}') from None
    _check(cuda, 'cuInit', cuda.cuInit(0))
    return cuda


def _check(cuda: ctypes.CDLL, name: str, code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        raise NoGpu(f'{name} failed: {(text.value or b"").decode() or f"error {code}"}')
