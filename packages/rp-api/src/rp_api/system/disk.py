"""Diagnosis of directories that cannot be written to, for programs whose own errors do not give the reason."""

from __future__ import annotations

import errno

_REASONS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_PIECE = bytes(4096)


def no_room(directory: str) -> str:
    """Return the directory and the reason why it is full: no space, an exceeded quota, or a read-only mount.

    Empty if it is not, or cannot be written for other reasons. A temporary file is written, because quotas cannot be
    queried otherwise.
    """
    import tempfile  # slow to import, and rarely needed

    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(_PIECE)
            file.flush()
    except OSError as error:
        if error.errno in _REASONS:
            return f'{directory}: {error.strerror}'
    return ''
