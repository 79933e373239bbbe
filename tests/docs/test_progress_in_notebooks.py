"""The progress of an executor in a notebook: one output, which changes, and what functions print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import processes_with, wait_until
from test_notebooks import executed, html_of, text_of

CELL = '''
import time
import radical.pilot as rp

def work(number):
    print('at work on', number)
    time.sleep(0.5)
    return number

with rp.Executor(cores=2) as ex:
    futures = [ex.submit(work, number) for number in range(12)]
    print(sum(future.result() for future in futures))
'''


def test_progress(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HOME', str(base))
    for name in ('RADICAL_PILOT_REPORT', 'RADICAL_REPORT'):
        monkeypatch.delenv(name, raising=False)
    notebook = base / 'progress.ipynb'
    cell: dict[str, Any] = {
        'cell_type': 'code', 'id': 'a', 'source': CELL, 'metadata': {}, 'outputs': [], 'execution_count': None}
    notebook.write_text(json.dumps({'cells': [cell], 'metadata': {}, 'nbformat': 4, 'nbformat_minor': 5}))
    ((*outputs,),) = executed(notebook, base)
    html = html_of(outputs)
    assert html.count('<progress') == 1
    assert '/12, ' in html
    assert sorted(text_of(outputs).splitlines()) == sorted([
        '66', *(f'work: at work on {number}' for number in range(12))])
    assert not any(output.get('name') == 'stderr' for output in outputs)
    wait_until(lambda: not processes_with(str(base)))
