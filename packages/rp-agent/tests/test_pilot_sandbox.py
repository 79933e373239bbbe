"""The files of a pilot: the helpers that tasks call, and what is made of them when the pilot ends."""

from __future__ import annotations

import logging
import os
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from rp_agent.sandbox import remove, updates, wrap_up, write_helpers


def config(pilot: Path, **values: Any) -> dict[str, Any]:
    """What the agent knows about its pilot."""
    return {'pilot_sandbox': str(pilot), 'agent_uid': 'agent_0', 'output_staging': [], 'cleanup': False} | values


@pytest.fixture
def pilot(tmp_path: Path) -> Path:
    """A sandbox with a configuration and some files."""
    path = tmp_path / 'pilot'
    (path / 'results/deep').mkdir(parents=True)
    (path / 'results/deep/one').write_text('1')
    (path / 'two').write_text('2')
    (path / 'agent_0.cfg').write_text('{"secret": "key"}')
    return path


def packed(pilot: Path) -> list[str]:
    """The names in the archive that the pilot leaves."""
    with tarfile.open(pilot / 'staging_output.tgz') as archive:
        return sorted(archive.getnames())


def test_helpers_can_be_run(tmp_path: Path) -> None:
    gtod, prof = write_helpers(str(tmp_path))
    assert (gtod, prof) == (f'{tmp_path}/gtod', f'{tmp_path}/prof')
    before = time.time()
    now = float(subprocess.run([gtod], check=True, capture_output=True, text=True, timeout=20).stdout)
    assert before - 1e-6 <= now <= time.time()
    target = tmp_path / 'task.prof'
    subprocess.run([prof, 'step', 'a message'], check=True, timeout=20, env=os.environ | {
        'RP_PROF_TGT': str(target), 'RP_GTOD': gtod, 'RP_TASK_ID': 'task.000000'})
    assert target.read_text().split(',')[1:] == ['step', '', 'MainThread', 'task.000000', 'AGENT_EXECUTING',
                                                 'a message\n']


def test_helpers_are_written_anew(tmp_path: Path) -> None:
    write_helpers(str(tmp_path))
    (tmp_path / 'gtod').write_text('broken')
    (tmp_path / 'gtod').chmod(0o600)
    gtod, _ = write_helpers(str(tmp_path))
    assert os.access(gtod, os.X_OK)
    assert Path(gtod).read_text() != 'broken'


def test_keys_do_not_stay(pilot: Path) -> None:
    wrap_up(config(pilot))
    assert sorted(path.name for path in pilot.iterdir()) == ['results', 'two']
    wrap_up(config(pilot))


def test_output_is_packed(pilot: Path) -> None:
    wrap_up(config(pilot, output_staging=['results', 'two']))
    assert packed(pilot) == ['results', 'results/deep', 'results/deep/one', 'two']
    with tarfile.open(pilot / 'staging_output.tgz') as archive:
        content = archive.extractfile('results/deep/one')
        assert content is not None
        assert content.read() == b'1'
    assert (pilot / 'two').exists()


def test_all_of_the_sandbox_is_packed(pilot: Path) -> None:
    """The archive does not hold itself, nor the keys."""
    wrap_up(config(pilot, output_staging=['.']))
    assert packed(pilot) == ['.', './results', './results/deep', './results/deep/one', './two']


def test_what_is_missing_holds_up_nothing_else(pilot: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        wrap_up(config(pilot, output_staging=['missing', 'two']))
    assert packed(pilot) == ['two']
    assert f'{pilot}/missing' in caplog.text


def test_link_to_nowhere_is_packed_as_it_is(pilot: Path) -> None:
    (pilot / 'link').symlink_to('nowhere')
    wrap_up(config(pilot, output_staging=['link']))
    assert packed(pilot) == ['link']


def test_archive_that_cannot_be_written(pilot: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The pilot ends all the same, and says why."""
    (pilot / 'staging_output.tgz').mkdir()
    with caplog.at_level(logging.ERROR):
        wrap_up(config(pilot, output_staging=['two']))
    assert 'staging_output.tgz' in caplog.text
    assert sorted(path.name for path in pilot.iterdir()) == ['results', 'staging_output.tgz', 'two']


def test_configuration_that_cannot_be_removed(pilot: Path, caplog: pytest.LogCaptureFixture) -> None:
    (pilot / 'agent_0.cfg').unlink()
    (pilot / 'agent_0.cfg').mkdir()
    with caplog.at_level(logging.ERROR):
        wrap_up(config(pilot))
    assert 'agent_0.cfg' in caplog.text


def test_cleanup(pilot: Path) -> None:
    wrap_up(config(pilot, cleanup=True))
    assert not pilot.exists()
    wrap_up(config(pilot, cleanup=True))


def test_cleanup_takes_the_archive_as_well(pilot: Path) -> None:
    wrap_up(config(pilot, cleanup=True, output_staging=['two']))
    assert not pilot.exists()


def test_cleanup_leaves_what_could_not_be_delivered(pilot: Path) -> None:
    """Until it is: then nothing stays."""
    file = Path(updates(config(pilot)))
    file.write_text('results')
    (pilot / 'link').symlink_to(pilot.parent)
    wrap_up(config(pilot, cleanup=True))
    assert list(pilot.iterdir()) == [file]
    remove(config(pilot, cleanup=True))
    assert file.read_text() == 'results'
    file.unlink()
    remove(config(pilot))
    assert pilot.exists()
    for _ in range(2):
        remove(config(pilot, cleanup=True))
        assert not pilot.exists()
    assert pilot.parent.exists()
