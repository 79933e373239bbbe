"""What an agent is told about itself: from the platform, the user's files and the pilot description."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rp_api.description.pilot import PilotDescription
from rp_api.errors import DescriptionError, PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_client.launcher.launchers import agent_settings


@pytest.fixture(autouse=True)
def user_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the user's configuration files."""
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(tmp_path))
    directory = tmp_path / '.radical/pilot/configs'
    directory.mkdir(parents=True)
    return directory


def settings(own: dict[str, Any] | None = None, **platform: Any) -> dict[str, Any]:
    return agent_settings(ResourceConfig(platform), PilotDescription({'_config': own or {}}))


TWO = {'components': {'agent_executing': {'count': 2}}}


def test_nothing_is_said() -> None:
    assert settings() == {}


def test_platform_says() -> None:
    assert settings(agent_config=TWO) == TWO


def test_user_has_a_file(user_files: Path) -> None:
    (user_files / 'agent_default.json').write_text(json.dumps({'a': 1}))
    (user_files / 'agent_two.json').write_text(json.dumps(TWO))
    assert settings() == {'a': 1}
    assert settings(agent_config='two') == TWO


def test_pilot_description_has_the_last_word() -> None:
    own = {'components': {'agent_executing': {'target': 'process'}, 'agent_staging_input': {'count': 3}}}
    assert settings(own, agent_config=TWO) == {'components': {
        'agent_executing': {'count': 2, 'target': 'process'}, 'agent_staging_input': {'count': 3}}}
    assert TWO == {'components': {'agent_executing': {'count': 2}}}


def test_file_that_does_not_exist() -> None:
    with pytest.raises(PlatformError, match=r'agent_none\.json'):
        settings(agent_config='none')


def test_what_cannot_travel() -> None:
    with pytest.raises(DescriptionError, match=r"PilotDescription\._config is .*'x': \{1\}.* JSON"):
        settings({'x': {1}})


@pytest.mark.parametrize(('own', 'words'), [
    ({'blowup_factor': {'Watcher': 4}}, 'blowup_factor.Watcher is 4, allowed: 1: a running task cannot be cloned'),
    ({'blowup_factor': {'update_queue': 2}}, 'blowup_factor.update_queue is 2, allowed: 1: clones do not pass'),
    ({'number_of_workers': {'UpdateWorker': 2}}, 'number_of_workers.UpdateWorker is 2, allowed: 1: updates are sent'),
])
def test_what_no_agent_accepts(own: dict[str, Any], words: str) -> None:
    """It is refused at the submission, whoever asks for it."""
    with pytest.raises(DescriptionError, match=words):
        settings(own)
    with pytest.raises(DescriptionError, match=words):
        settings(agent_config=own)
