"""The fault matrix in its short form: every fault at a few moments of small runs. `nox -s faults` is the long one."""

from __future__ import annotations

import os
import random
import shutil

import pytest
from fault_matrix import database
from fault_matrix.faults import FAULTS
from fault_matrix.row import trial
from fault_matrix.run import Size

pytestmark = pytest.mark.fault

USUAL = 1.0
"""Seconds that a small run takes where nobody is in a hurry: faults happen within them."""

ALL = [name for name, fault in FAULTS.items() if 'hub' in fault.backends and name != 'none']
KILLS = [name for name in ALL if name.startswith('kill')]
CASES = [(name, number) for number, names in enumerate((ALL, KILLS, KILLS)) for name in names]


@pytest.mark.parametrize(('name', 'number'), CASES)
def test_nothing_is_lost(name: str, number: int) -> None:
    fault = FAULTS[name]
    if fault.small_disk and (os.geteuid() != 0 or not shutil.which('mount')):
        pytest.skip('needs the right to mount')
    check('hub', name, number)


@pytest.mark.skipif(not database.available(), reason='needs nx-27017')
@pytest.mark.parametrize('name', ['kill-database', 'kill-application', 'kill-agent'])
def test_nothing_is_lost_with_a_database(name: str) -> None:
    check('mongodb', name, 0)


def check(backend: str, name: str, number: int) -> None:
    fault = FAULTS[name]
    seed = f'{backend} {name} {number}'
    moment = random.Random(seed).uniform(0, USUAL)
    report = trial(fault, Size(tasks=300, spawner='POPEN', seconds=1.5, deadline=45), backend, moment, seed)
    assert report.losses == [], f'{moment:.3f} s after the opening, {report.progress} tasks were final'
