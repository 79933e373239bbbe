"""The programs by which tasks call their pilot; what they do with an agent is in `tests/system/test_pilot_calls.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rp_api.endpoint import programs
from rp_api.system.host import python_program


@pytest.mark.parametrize(('texts', 'args', 'kwargs'), [
    ([], [], {}),
    (['a=1', 'b=text', 'c=[1, "x"]', 'd='], [], {'a': 1, 'b': 'text', 'c': [1, 'x'], 'd': ''}),
    (['task.0000', '7', 'null', '1=2', '{"x=y": 1}'], ['task.0000', 7, None, '1=2', {'x=y': 1}], {}),
    (['expression=a=b'], [], {'expression': 'a=b'})])
def test_arguments(texts: list[str], args: list[object], kwargs: dict[str, object]) -> None:
    assert programs.arguments(texts) == (args, kwargs)


@pytest.mark.parametrize(('arguments', 'code', 'text'), [
    (['/not/there', 'dance'], 1, 'radical-pilot-control: /not/there is not the sandbox of a pilot on this host'),
    (['.', 'dance'], 1, 'there is no endpoint at ./endpoint.json: the pilot has ended, or was submitted without'),
    ([], 2, 'usage: radical-pilot-control')])
def test_errors(arguments: list[str], code: int, text: str, tmp_path: Path) -> None:
    done = subprocess.run([*python_program('rp_api.endpoint.programs'), *arguments], cwd=tmp_path, capture_output=True,
                          text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, '')
    assert text in done.stderr


def test_signal_outside_of_a_task(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv('RP_PILOT_SANDBOX', raising=False)
    monkeypatch.setattr(sys, 'argv', ['radical-pilot-service-signal', '--info', 'http://x'])
    assert programs.service_signal() == 1
    assert 'RP_PILOT_SANDBOX is not set' in capsys.readouterr().err
