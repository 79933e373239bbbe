from typing import final

import numpy as np
from numpy.typing import NDArray

SKIP: int
STRICT: int
RELAXED: int
UNEXPECTED: int
UNFINISHED: int
FORBIDDEN: int
AFTER_END: int
REPEATED: int

_Rows = NDArray[np.uint32]
_Starts = NDArray[np.int64]

def group(keys: NDArray[np.uint32], n_keys: int, times: NDArray[np.int64] | None) -> tuple[_Rows, _Starts]: ...

@final
class Matcher:
    violations: list[tuple[int, int, list[int]]]
    count: int
    def __init__(self, symbols: NDArray[np.int16], strict: NDArray[np.int16], relaxed: NDArray[np.int16],
                 strict_ends: NDArray[np.uint8], once: NDArray[np.uint8], named: NDArray[np.uint8],
                 limit: int) -> None: ...
    def run(self, rows: _Rows, starts: _Starts, modes: NDArray[np.uint8], attempts: NDArray[np.int32],
            events: NDArray[np.uint16], sources: NDArray[np.uint32], keys: NDArray[np.int32],
            messages: NDArray[np.uint32] | None) -> None: ...

def check_states(rows: _Rows, starts: _Starts, events: NDArray[np.uint16], states: NDArray[np.uint16],
                 sources: NDArray[np.uint32], modes: NDArray[np.uint8], places: NDArray[np.int32], advance: int,
                 values: NDArray[np.int8], bits: NDArray[np.int16],
                 again: NDArray[np.uint8], final: int, times: NDArray[np.int64], limit: int,
                 ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint32], list[tuple[int, int, int]],
                            int]: ...
def has_event(rows: _Rows, starts: _Starts, events: NDArray[np.uint16],
              wanted: NDArray[np.uint8]) -> NDArray[np.uint8]: ...
