from typing import final

import numpy as np
from numpy.typing import NDArray

from rp_profiling.read.names import Names

TICKS: int

@final
class Columns:
    events: Names
    uids: Names
    states: Names
    messages: Names
    sources: list[tuple[int, int, str, str]]
    count: int
    torn: int
    def __init__(self, size: int) -> None: ...
    @property
    def time(self) -> NDArray[np.int64]: ...
    @property
    def event(self) -> NDArray[np.uint16]: ...
    @property
    def source(self) -> NDArray[np.uint32]: ...
    @property
    def uid(self) -> NDArray[np.uint32]: ...
    @property
    def state(self) -> NDArray[np.uint16]: ...
    @property
    def message(self) -> NDArray[np.uint32]: ...
    def begin(self) -> int: ...
    def add(self, text: bytes) -> None: ...
