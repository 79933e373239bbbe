"""Finds out why nothing can be written to a directory; programs that fail of it often cannot say so."""

from __future__ import annotations

import errno

_REASONS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_PIECE = bytes(4096)


def no_room(directory: str) -> str:
    """The directory and the reason why no file can be added there: a full disk, a used-up quota, or a read-only mount.

    Empty if one can, or if there is another reason. It is tried, as no other way tells of quotas; no file is left.
    """
    import tempfile  # takes long to load, and most processes never need it

    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(_PIECE)
            file.flush()
    except OSError as error:
        if error.errno in _REASONS:
            return f'{directory}: {error.strerror}'
    return ''
