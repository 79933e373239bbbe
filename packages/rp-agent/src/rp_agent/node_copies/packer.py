"""The program that packs a directory into an archive, once for all pilots that use it.

    packer DIRECTORY ARCHIVE PARENT

It works under a lock that ends with the process. The archive appears under its name when it is complete; one that
exists is not packed again. The last line of standard error says why it has failed.
"""

from __future__ import annotations

import fcntl
import os
import sys

from rp_agent.lineage import die_with_parent
from rp_agent.node_copies.archive import CopyError, pack
from rp_api.errors import sentence


def main() -> int:
    """Pack the directory and return the exit code."""
    directory, archive, parent = sys.argv[1:]
    die_with_parent(int(parent))
    try:
        _pack(directory, archive)
    except (OSError, CopyError) as error:
        print(f'{directory} cannot be packed: {sentence(error)}', file=sys.stderr)
        return 1
    return 0


def _pack(directory: str, archive: str) -> None:
    part = f'{archive}.part'
    with open(os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), 'r+b') as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        if os.path.exists(archive):   # another pilot has packed it, at this time or earlier
            if os.path.exists(part) and os.path.samestat(os.stat(part), os.fstat(file.fileno())):
                os.unlink(part)
            return
        try:
            file.truncate()   # the part of a packer that was killed
            pack(directory, file)
            file.flush()
            os.replace(part, archive)
        except BaseException:
            os.unlink(part)
            raise
