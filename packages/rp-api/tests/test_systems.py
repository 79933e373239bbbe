"""The table of batch systems and launch methods, and batch systems of other distributions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rp_api.errors import PlatformError
from rp_api.platforms import systems


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed distribution with a batch system; the file is its module."""
    metadata = tmp_path / 'mysys-1.0.dist-info'
    metadata.mkdir()
    (metadata / 'METADATA').write_text('Metadata-Version: 2.1\nName: mysys\nVersion: 1.0\n')
    (metadata / 'entry_points.txt').write_text('[radical_pilot.batch_systems]\nmysys = rp_mysys_row:MYSYS\n')
    module = tmp_path / 'rp_mysys_row.py'
    module.write_text("from rp_api.platforms.systems import BatchSystem\n"
                      "MYSYS = BatchSystem('MYSYS', 'rp_mysys_row:nodes', 'mysys', 'rp_mysys_row:jobs', 'MYSYS_JOB')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield module
    sys.modules.pop('rp_mysys_row', None)


def test_names_are_unique() -> None:
    for column in (0, 2):
        found = [system[column] for system in systems.BATCH_SYSTEMS if system[column]]
        assert len(found) == len(set(found))


def test_launch_methods_need_programs() -> None:
    assert [name for name, method in systems.LAUNCH_METHODS.items() if not method.programs] == ['FORK']


@pytest.mark.usefixtures('plugin')
def test_definitions_may_name_batch_systems_of_others() -> None:
    assert 'MYSYS' in systems.resource_managers()
    assert {'mysys', 'mysys+ssh'} <= systems.job_schemes()
    assert systems.submitter('mysys') == 'rp_mysys_row:jobs'


def test_an_entry_point_that_is_no_batch_system(plugin: Path) -> None:
    plugin.write_text('MYSYS = 5\n')
    with pytest.raises(PlatformError, match=r'batch system mysys \(rp_mysys_row:MYSYS\) is 5, not a BatchSystem'):
        systems.job_schemes()


def test_an_unknown_scheme() -> None:
    assert systems.submitter('pbs') == ''
