"""Where people read: terminals and notebooks, and the choices of where the output of functions goes."""

from __future__ import annotations

import os
import sys
from typing import Any

TERMINAL, FUTURE, FILE = 'terminal', 'future', 'file'
"""Places for the output of functions: the terminal and the future, the future, or only the output of the worker."""


def is_place(value: Any) -> bool:
    """Return whether a value is a place for the output of functions: one of these, or the path of a file."""
    if isinstance(value, os.PathLike):
        return True
    return isinstance(value, str) and (value in (TERMINAL, FUTURE, FILE) or os.sep in value)


def is_terminal(stream: Any) -> bool:
    """Return whether a stream, which may be closed or missing, is a terminal."""
    return stream is not None and not getattr(stream, 'closed', False) and stream.isatty()


def in_notebook() -> bool:
    """Return whether the process is the kernel of a notebook."""
    shell = sys.modules['IPython'].get_ipython() if 'IPython' in sys.modules else None
    return shell is not None and hasattr(shell, 'kernel')


def is_read(stream: Any) -> bool:
    """Return whether a person reads a stream while the program runs."""
    return is_terminal(stream) or in_notebook()
