"""What tests of commands share: the commands, and the application that they look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

APPLICATION = Path(__file__).with_name('watched.py')


def rp_command(*arguments: str, code: int = 0, **environ: str) -> str:
    """What `rp` says with these arguments: its output, and after an error what it says of that."""
    done = subprocess.run([sys.executable, '-m', 'rp_client.cli', *arguments], capture_output=True, text=True,
                          timeout=100, env=os.environ | environ)
    assert done.returncode == code, done.stderr
    assert 'Traceback' not in done.stderr
    return done.stdout + done.stderr if code else done.stdout


def as_json(*arguments: str) -> Any:
    return json.loads(rp_command(*arguments, '--json'))


def states(*arguments: str) -> dict[str, str]:
    """The states of tasks by uid."""
    return {row['uid']: row['state'] for row in as_json('task', 'list', '--limit', '0', *arguments)}


def start(uid: str = 'watched') -> subprocess.Popen[str]:
    """Start the application, and wait until its tasks are as they should be."""
    process = subprocess.Popen([sys.executable, APPLICATION, uid], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == 'ready\n'
    return process


def close(process: subprocess.Popen[str]) -> None:
    """Have the application close its session."""
    process.communicate('\n', timeout=60)
    assert process.returncode == 0


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the application, whose session goes on."""
    process.kill()
    process.communicate(timeout=60)
