"""Deprecation warnings for renamed API."""

from __future__ import annotations

import sys
import warnings

_OURS = ('rp_api', 'rp_client', 'rp_agent', 'rp_raptor', 'radical.pilot')


def warn_renamed(old: str, new: str) -> None:
    """Warn (DeprecationWarning) the code that uses an old name, outside of these distributions, of its new name."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get('__name__', '')):
        level, frame = level + 1, frame.f_back
    warnings.warn(f'{old} is deprecated, use {new}', DeprecationWarning, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module.startswith(_OURS)
