from collections.abc import Iterable
from typing import Any, Final, final

__pyx_capi__: Final[dict[str, Any]]

@final
class MemorySample:
    def __init__(self, sessions: Iterable[int]) -> None: ...
    def step(self, most: int) -> bool: ...
    def memory(self) -> dict[int, int]: ...
