"""What a master that was killed leaves behind: the file for its workers, and the socket where it has listened."""

from __future__ import annotations

import os
from contextlib import suppress

from rp_api.raptor_link import master_file


def remove(pilot_sandbox: str, uid: str, address: str) -> None:
    """Remove what the master of that uid may have left, whose process has ended; `address` is where it listened.

    A socket is removed only if it lies where masters put it, in a directory of its own that nobody else can enter.
    """
    with suppress(OSError):   # most masters clean up after themselves
        os.unlink(master_file(pilot_sandbox, uid))
    path = address.removeprefix('ipc://')
    directory = os.path.dirname(path)
    if path == address or not os.path.basename(directory).startswith('rp.'):
        return
    with suppress(OSError):
        status = os.stat(directory)
        if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
            with suppress(FileNotFoundError):   # it was killed when it had begun to clean up
                os.unlink(path)
            os.rmdir(directory)
