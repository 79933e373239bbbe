"""The notebook among the examples is executed by a real kernel, and leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import processes_with, wait_until

ROOT = Path(__file__).parents[2]


def executed(notebook: Path, base: Path) -> list[list[dict[str, Any]]]:
    """The outputs of the notebook's cells with code."""
    target = base / 'executed.ipynb'
    code = 'from nbclient.cli import main; main()'
    done = subprocess.run([sys.executable, '-c', code, str(notebook), '--timeout=120', f'--output={target}'], cwd=base,
                          capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return [cell['outputs'] for cell in json.loads(target.read_text())['cells'] if cell['cell_type'] == 'code']


def text_of(outputs: list[dict[str, Any]]) -> str:
    return ''.join(''.join(output['text']) for output in outputs if output.get('name') == 'stdout')


def html_of(outputs: list[dict[str, Any]]) -> str:
    return ''.join(''.join(output['data'].get('text/html', '')) for output in outputs if 'data' in output)


def test_notebook(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(base))
    _, result, completed, failure, tasks, pilot, session = executed(ROOT / 'examples/notebook.ipynb', base)
    assert text_of(result) == '0 hello world\n\n'
    assert sorted(line.split()[1] for line in text_of(completed).splitlines()) == ['DONE'] * 3 + ['FAILED'] * 3
    assert text_of(failure) == 'exit 1\n'
    assert '7 tasks, 4 DONE, 3 FAILED' in html_of(tasks)
    assert 'PMGR_ACTIVE' in html_of(pilot)
    assert '>closed<' in html_of(session)
    wait_until(lambda: not processes_with(str(base)))
