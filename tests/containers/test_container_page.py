"""The example of the page on containers, with an image of the same content as that of its Dockerfile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mpi.installations import installation

PAGE = Path(__file__).parents[2] / 'docs' / 'guides' / 'containers.md'
PLUGINS = Path('/usr/lib/x86_64-linux-gnu/ucx')


def libraries(*programs: Path) -> set[str]:
    """All libraries that programs need."""
    return {path for program in programs for path in re.findall(
        r'(/\S+) \(0x', subprocess.run(['ldd', program], capture_output=True, text=True, check=True).stdout)}


def test_a_container_with_mpi(base: Path, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpi = installation('Debian mpich', base)
    files = dict(re.findall(r'^```\w+ (\S+)\n(.*?)^```', PAGE.read_text(), re.MULTILINE | re.DOTALL))
    for name, text in files.items():
        (base / name).write_text(text)
    shutil.copytree(image, base / 'image', symlinks=True)
    program = base / 'image' / 'usr' / 'local' / 'bin' / 'hello'
    program.parent.mkdir(parents=True)
    subprocess.run([mpi.compiler, '-o', program, base / 'hello.c'], check=True, timeout=60)
    for path in libraries(program, *PLUGINS.glob('*.so.0')) | {str(each) for each in PLUGINS.glob('*.so.0')}:
        target = Path(f'{base}/image/usr{path.removeprefix("/usr")}')
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    monkeypatch.setenv('HOME', str(base))
    monkeypatch.setenv('PATH', f'{mpi.programs}:{os.environ["PATH"]}')
    done = subprocess.run([sys.executable, '-W', 'error', 'application.py'], cwd=base, capture_output=True, text=True,
                          timeout=50)
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    assert first.strip() == 'DONE'
    assert sorted(filter(None, others)) == [f'rank {rank} of 4, sum 6' for rank in range(4)]
