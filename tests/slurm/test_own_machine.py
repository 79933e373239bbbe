"""The page that adds a machine: its files, just as they stand there, on a real Slurm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from slurm_cluster import SlurmCluster

PAGE = Path(__file__).parents[2] / 'docs/guides/platforms/add-your-own-machine.md'
FILE = re.compile(r'^```\w+ (\S+)\n(.*?)^```', re.MULTILINE | re.DOTALL)


def run(slurm: SlurmCluster, base: Path, *arguments: str) -> str:
    """What a Python program prints that has that home directory; it must end well."""
    environ = os.environ | slurm.environ | {'HOME': str(base), 'SCRATCH': f'{base}/scratch'}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=base, env=environ, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page(slurm: SlurmCluster, base: Path) -> None:
    for name, text in FILE.findall(PAGE.read_text()):
        path = base / name.replace('config/', '.radical/pilot/configs/')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (base / 'scratch').mkdir()
    checked = run(slurm, base, '-m', 'rp_client.cli', 'platforms', 'check', 'mysite.cluster')
    assert 'bad' not in {line.split()[0] for line in checked.splitlines()}, checked
    assert run(slurm, base, 'first.py').splitlines() == [f'DONE {slurm.run("hostname").strip()}'] * 4
    assert list((base / 'scratch').iterdir())
