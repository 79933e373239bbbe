"""Stands in for `flux.future`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flux import Flux


class Future:
    handle: Flux
    """Where it was made."""

    def __init__(self) -> None:
        self._answers: deque[dict[str, Any]] = deque()
        self._callback: tuple[Callable[..., object], tuple[Any, ...]] | None = None

    def then(self, callback: Callable[..., object], *args: Any) -> Future:
        self._callback = callback, args
        return self

    def fulfil(self, answer: dict[str, Any]) -> None:
        if self._callback is None:
            self._answers.append(answer)
        else:
            self._answers = deque([answer])
            callback, args = self._callback
            callback(self, *args)

    def get(self) -> dict[str, Any]:
        while not self._answers:
            self.handle.receive()
        if 'error' in self._answers[0]:
            raise OSError(22, self._answers[0]['error'])
        return self._answers[0]

    def reset(self) -> None:
        self._answers.popleft()
