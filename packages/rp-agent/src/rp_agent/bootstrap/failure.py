"""Error report of the bootstrap: a file in the sandbox, which the client's launcher reads after the job has ended."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

from rp_api.system import private

FILE = 'bootstrap_0.failed'

TAIL = 2048
"""Bytes of output in the report."""


class BootstrapError(Exception):
    """The bootstrap cannot continue. Holds an exit code, a sentence, and a log file (or '') with its last lines."""

    def __init__(self, code: int, sentence: str, file: str = '', tail: str = '') -> None:
        super().__init__(sentence)
        self.code = code
        self.file = file
        self.tail = tail


def report(stage: int, error: BootstrapError) -> None:
    """Write the error to standard error and to the report file; ignore a full disk."""
    print(f'stage {stage}: {error}', file=sys.stderr)
    content = json.dumps({'stage': stage, 'exit_code': error.code, 'sentence': str(error), 'file': error.file,
                          'tail': error.tail})
    with suppress(OSError):
        private.write_file(FILE, f'{content}\n'.encode())
