"""The scripts with which radical.saga's adaptors submit pilots, for the batch systems that only it reaches.

`RP_WRITE_SCRIPTS=1 pytest test_saga_scripts.py` writes them anew.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from job_cases import ADAPTED

HERE = Path(__file__).parent
SCRIPTS = HERE / 'golden' / 'saga'
BETWEEN = '\n--- then ---\n'

pytestmark = pytest.mark.skipif('CI' not in os.environ and importlib.util.find_spec('radical.saga') is None,
                                reason='radical.saga is not installed')


@pytest.fixture(scope='module')
def submitted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is run for each case."""
    home = tmp_path_factory.mktemp('home')
    command = [sys.executable, '-W', 'ignore', str(HERE / 'saga_submitted.py'), *ADAPTED]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True, cwd=home,
                          env=os.environ | {'HOME': str(home)})
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: BETWEEN.join(commands).replace(str(home), '/home/me') + '\n' for name, commands in found.items()}


@pytest.mark.parametrize('name', ADAPTED)
def test_script(name: str, submitted: dict[str, str]) -> None:
    path = SCRIPTS / f'{name}.txt'
    if os.environ.get('RP_WRITE_SCRIPTS'):
        path.write_text(submitted[name])
    assert submitted[name] == path.read_text()


def test_no_script_is_left_over() -> None:
    assert {path.stem for path in SCRIPTS.iterdir()} == set(ADAPTED)
