"""Runs `pilot_application.py`, or another application, as a program of its own, here or on another host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name('pilot_application.py')


def run(environ: Mapping[str, str], base: Path, prefix: Sequence[str] = (), *arguments: str,
        program: Path = PROGRAM) -> dict[str, Any]:
    """What an application tells that is run there, with what it has written to standard error."""
    done = subprocess.run([*prefix, sys.executable, str(program), str(base), *arguments], cwd=base, text=True,
                          env=os.environ | dict(environ), capture_output=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1]) | {'stderr': done.stderr}   # type: ignore[no-any-return]
