"""Programs and shell commands that calls run."""

from __future__ import annotations

from pathlib import Path

import pytest
from leftovers import must_end

from rp_raptor.rank.programs import run_command, run_program

LEAVES = 'sleep 1000 & echo $! >pid; echo said'


@pytest.mark.parametrize('mode', ['proc', 'shell'])
def test_what_a_program_leaves_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Its output, which that holds, is complete nevertheless."""
    monkeypatch.chdir(tmp_path)
    Path('leaves.sh').write_text(LEAVES)
    outcome = run_command(LEAVES, '', '') if mode == 'shell' else run_program('/bin/sh', ['leaves.sh'], '', '')
    assert (outcome.stdout, outcome.exit_code) == ('said\n', 0)
    must_end([int(Path('pid').read_text())])
