"""Reasons, as applications and commands get them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Reason(NamedTuple):
    """Why a task or pilot does not run, has failed, or is slow. `str(reason)` is the sentence.

    Attributes:
        kind: One of `rp_api.reasons.kinds.KINDS`.
        sentence: The reason in words.
        since: When it began, in seconds since 1970; None if that is not known.
        evidence: What the sentence follows from, plain data; its keys depend on the kind.
        remedy: What to do about it, in one sentence; empty if there is nothing to do but wait.
    """

    kind: str
    sentence: str
    since: float | None = None
    evidence: Mapping[str, Any] = {}
    remedy: str = ''

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, Any]:
        """Return the reason as plain data."""
        return {**self._asdict(), 'evidence': dict(self.evidence)}
