"""Removal of the files that a killed master leaves: the access file for its workers, and its socket."""

from __future__ import annotations

import os
from contextlib import suppress

from rp_api.raptor_link import master_file


def remove(pilot_sandbox: str, uid: str, address: str) -> None:
    """Remove the files of the master of that uid, which listened at `address` and whose process has ended.

    A socket is removed only if it is where masters put it: in a directory of its own that other users cannot enter.
    """
    with suppress(OSError):   # most masters have removed it
        os.unlink(master_file(pilot_sandbox, uid))
    path = address.removeprefix('ipc://')
    directory = os.path.dirname(path)
    if path == address or not os.path.basename(directory).startswith('rp.'):
        return
    with suppress(OSError):
        status = os.stat(directory)
        if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
            with suppress(FileNotFoundError):   # the master was killed during its own clean-up
                os.unlink(path)
            os.rmdir(directory)
