"""Every example in the documentation runs, as a program of its own, in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [path for pattern in ('README.md', 'docs/**/*.md', 'packages/*/README.md') for path in ROOT.glob(pattern)]
BLOCK = re.compile(r'^```python\n(.*?)^```', re.MULTILINE | re.DOTALL)
BLOCKS = [pytest.param(block, id=f'{path.relative_to(ROOT)}-{number}') for path in sorted(DOCUMENTS)
          for number, block in enumerate(BLOCK.findall(path.read_text()))]


def run_program(arguments: list[str], base: Path) -> str:
    """What a program prints, run by this interpreter; it must end well and quietly."""
    done = subprocess.run([sys.executable, '-W', 'error', *arguments], cwd=base, capture_output=True, text=True,
                          timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize('block', BLOCKS)
def test_block_of_a_document(block: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(base))   # local pilots have their sandbox there
    run_program(['-c', block], base)


def test_first_tasks(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(base))
    printed = run_program([str(ROOT / 'examples/first_tasks.py')], base)
    assert printed.count('DONE hello from number') == 8


def test_executor(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(base))
    printed = run_program([str(ROOT / 'examples/executor.py'), '--seeds', '6'], base)
    assert printed.count('points are in the circle') == 6
    assert 'pi is about 3.1' in printed


def test_partitions(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(base))
    printed = run_program([str(ROOT / 'examples/partitions.py')], base)
    assert '20 short tasks are done' in printed
    assert printed.count('DONE in partition') == 3
    assert 'pilot.0000.0002 has 1 core' in printed


def test_reattach(base: Path) -> None:
    printed = run_program([str(ROOT / 'examples/reattach.py'), '--tasks', '60'], base)
    assert 'the first application is gone (exit code -9)' in printed
    assert 'attached: 60 tasks' in printed
    assert '60 of 60 results are there and right' in printed


def test_quickstart(base: Path) -> None:
    printed = run_program([str(ROOT / 'examples/quickstart.py'), '--limit', '40'], base)
    assert '40 of 40 files compressed and verified' in printed
    assert 'busy' in printed
    assert (base / 'quickstart.png').read_bytes().startswith(b'\x89PNG')
    assert f'Timeline of the cores: {base}/quickstart.png' in printed


def test_quickstart_is_quiet_when_asked(base: Path) -> None:
    done = subprocess.run([sys.executable, ROOT / 'examples/quickstart.py', '--limit', '5', '--quiet'], cwd=base,
                          capture_output=True, text=True, timeout=50, check=True)
    assert done.stderr == ''
    assert len(done.stdout.splitlines()) == 1


def test_raptor(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(base))
    printed = run_program([str(ROOT / 'examples/raptor.py'), '--calls', '2000'], base)
    assert '2000 calls in' in printed
    assert 'the results are right' in printed


@pytest.mark.long
def test_screening(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if 'CI' not in os.environ:   # there it is installed
        pytest.importorskip('rdkit', reason='examples/screening needs RDKit')
    monkeypatch.setenv('HOME', str(base))
    program = str(ROOT / 'examples/screening/screening.py')
    printed = run_program([program, '--molecules', '20', '--cores', '2', '--check'], base)
    assert 'the best of 20 molecules' in printed
    assert 'a plain loop gives the same' in printed
    assert (base / 'scores.svg').exists()
    assert (base / 'throughput.svg').exists()
