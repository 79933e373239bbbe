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

PARTS = (1.0, 0.3, 0.3)
"""Seconds that the parts of a small run take where nobody is in a hurry: faults happen within them. A pilot starts in
the first one."""

KILLS = [name for name in FAULTS if name.startswith('kill') and 'service' not in name]
HUB = [name for name, fault in FAULTS.items() if 'hub' in fault.backends and name != 'none']


@pytest.mark.parametrize('name', HUB)
def test_nothing_is_lost(name: str) -> None:
    fault = FAULTS[name]
    if fault.small_disk and (os.geteuid() != 0 or not shutil.which('mount')):
        (pytest.fail if 'CI' in os.environ else pytest.skip)('needs the right to mount')
    check('hub', name)


@pytest.mark.skipif('CI' not in os.environ and not database.available(), reason='needs nx-27017')
@pytest.mark.parametrize('name', ['kill-database', 'kill-application', 'kill-agent'])
def test_nothing_is_lost_with_a_database(name: str) -> None:
    check('mongodb', name, tasks=100)   # the server is slow


@pytest.mark.parametrize('name', ['kill-hub', 'kill-service-and-hub', 'kill-application', 'mix-messages'])
def test_nothing_is_lost_with_a_stand_alone_hub(name: str) -> None:
    check('rp-hub', name)


def check(backend: str, name: str, tasks: int = 300) -> None:
    """A run in which a process is killed again and again, or something else happens once."""
    seed = f'{backend} {name}'
    source = random.Random(seed)
    parts = PARTS if name in KILLS else PARTS[:1]
    moments = [source.uniform(0, seconds) for seconds in parts]
    report = trial(FAULTS[name], Size(tasks, 'POPEN', seconds=1.5, deadline=45), backend, moments, seed)
    assert report.losses == [], f'{moments} seconds after beginnings of parts, {report.progress} tasks were final'
