"""How the bootstrap tells what went wrong: in the sandbox, where the client's launcher looks when the job has ended."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from rp_api.system import private

FILE = 'bootstrap_0.failed'

TAIL = 2048
"""Bytes of output that are shown."""


class BootstrapError(Exception):
    """The bootstrap cannot go on: exit code, sentence, and the file that says more (or '') with its last lines."""

    def __init__(self, code: int, sentence: str, file: str = '', tail: str = '') -> None:
        super().__init__(sentence)
        self.code = code
        self.file = file
        self.tail = tail


def report(stage: int, error: BootstrapError) -> None:
    """Write what went wrong to standard error and to the file; a disk that is full must not hide the former."""
    print(f'stage {stage}: {error}', file=sys.stderr)
    content = json.dumps({'stage': stage, 'exit_code': error.code, 'sentence': str(error), 'file': error.file,
                          'tail': error.tail})
    with suppress(OSError):
        private.write_file(FILE, f'{content}\n'.encode())
