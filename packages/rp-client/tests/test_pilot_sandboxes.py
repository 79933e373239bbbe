"""Where the files of pilots and tasks lie."""

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest

from rp_api.description.pilot import PilotDescription
from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_client.launcher.sandbox import PilotSandboxes, files_endpoint, pilot_sandboxes


def sandboxes(workdir: str = '', **description: Any) -> PilotSandboxes:
    """Those of a pilot on a platform with a work directory."""
    return pilot_sandboxes('/client', 'session', 'pilot.0000', PilotDescription(description),
                           ResourceConfig({'default_remote_workdir': workdir}))


def test_layout() -> None:
    assert sandboxes('/scratch') == PilotSandboxes(
        '/client', '/scratch/radical.pilot.sandbox', '/scratch/radical.pilot.sandbox/session',
        '/scratch/radical.pilot.sandbox/session/pilot.0000')


def elsewhere(workdir: str = '', **description: Any) -> PilotSandboxes:
    return pilot_sandboxes('/client', 'session', 'pilot.0000', PilotDescription(description),
                           ResourceConfig({'default_remote_workdir': workdir}), here=False)


def test_variables_of_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are left to it; those of the description are the client's."""
    monkeypatch.setenv('PLACE', '/mine')
    assert elsewhere('$PLACE/x').pilot == '$PLACE/x/radical.pilot.sandbox/session/pilot.0000'
    assert elsewhere().resource == '$PWD/radical.pilot.sandbox'
    assert elsewhere('$PLACE', sandbox='$PLACE/y').resource == '/mine/y/radical.pilot.sandbox'
    assert not elsewhere().here
    assert sandboxes().here


@pytest.mark.parametrize(('files', 'jobs', 'found'), [
    ('sftp://dtn/', 'slurm+ssh://login/', 'sftp://dtn/'), ('file://localhost/', 'slurm+ssh://login/', 'slurm+ssh://login/'),
    ('', 'ssh://host/', 'ssh://host/'), ('file://localhost/', 'slurm://localhost/', '')])
def test_where_files_are_staged_to(files: str, jobs: str, found: str) -> None:
    platform = ResourceConfig({'filesystem_endpoint': files, 'job_manager_endpoint': jobs})
    assert files_endpoint(platform) == found


def test_moved() -> None:
    found = elsewhere('$PLACE/x').moved('/there/radical.pilot.sandbox')
    assert found == PilotSandboxes('/client', '/there/radical.pilot.sandbox', '/there/radical.pilot.sandbox/session',
                                   '/there/radical.pilot.sandbox/session/pilot.0000', here=False)


def test_description_wins() -> None:
    assert sandboxes('/scratch', sandbox='/mine').resource == '/mine/radical.pilot.sandbox'


def test_working_directory_where_nobody_says_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PWD', '/where/i/am')
    assert sandboxes().resource == '/where/i/am/radical.pilot.sandbox'


def test_variables_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('SCRATCH', '/scratch/me')
    assert sandboxes('$SCRATCH').resource == '/scratch/me/radical.pilot.sandbox'
    assert sandboxes(sandbox='${SCRATCH}/deep').resource == '/scratch/me/deep/radical.pilot.sandbox'


@pytest.mark.parametrize('home', [None, ''])
def test_the_user_database_knows_the_home_directory(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    monkeypatch.delenv('HOME') if home is None else monkeypatch.setenv('HOME', home)
    known = pwd.getpwuid(os.getuid()).pw_dir.rstrip('/')
    assert sandboxes('$HOME').resource == f'{known}/radical.pilot.sandbox'
    assert sandboxes(sandbox='${HOME}/deep').resource == f'{known}/deep/radical.pilot.sandbox'
    monkeypatch.setenv('HOMESTEAD', '/x')
    assert sandboxes('$HOMESTEAD').resource == '/x/radical.pilot.sandbox'


def test_attributes_are_filled_in() -> None:
    assert sandboxes('/scratch/%(pd.project)s/%(pd.PROJECT)s', project='abc').resource == (
        '/scratch/abc/ABC/radical.pilot.sandbox')


@pytest.mark.parametrize(('label', 'project', 'path'), [
    ('ornl.frontier', 'CHM155_003', 'CHM155'), ('ncsa.delta', 'bbka-delta-gpu', 'bbka'),
    ('ncsa.delta', 'bbka_x', 'bbka_x'), ('nersc.perlmutter', 'm1_x-y', 'm1_x-y'),
    ('nersc.perlmutter', 'm1:reservation', 'm1')])
def test_directories_are_called_after_projects(label: str, project: str, path: str) -> None:
    """Not after accounts, of which a project has several on some machines."""
    platform = ResourceConfig({'label': label, 'default_remote_workdir': '/scratch/%(pd.project)s'})
    found = pilot_sandboxes('/client', 'session', 'pilot.0000', PilotDescription({'project': project}), platform)
    assert found.resource == f'/scratch/{path}/radical.pilot.sandbox'


def test_attribute_that_is_not_set() -> None:
    with pytest.raises(PlatformError, match="needs the attribute 'project'"):
        sandboxes('/scratch/%(pd.project)s')


def test_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('SCRATCH', raising=False)
    with pytest.raises(ValueError, match=r"'\$SCRATCH/x' of pilot.0000 uses an environment variable that is not set"):
        sandboxes(sandbox='$SCRATCH/x')


@pytest.mark.parametrize('path', ['relative', './here', '~/there'])
def test_path_that_is_not_absolute(path: str) -> None:
    with pytest.raises(ValueError, match=f"'{path}' of pilot.0000 is not an absolute path"):
        sandboxes(sandbox=path)


@pytest.mark.parametrize(('sandbox', 'path'), [
    ('', 'task.1'), ('name', 'name'), ('deep/er', 'deep/er'), ('./name/', 'name'), ('.', ''), ('a/../b', 'b')])
def test_sandbox_of_a_task(sandbox: str, path: str) -> None:
    pilot = sandboxes('/scratch')
    assert pilot.task('task.1', sandbox) == f'{pilot.pilot}/{path}'.rstrip('/')


@pytest.mark.parametrize(('sandbox', 'path'), [
    ('/elsewhere', '/elsewhere'), ('/else/../where//', '/where'),
    ('..', '/scratch/radical.pilot.sandbox/session'),
    ('../other/task.2', '/scratch/radical.pilot.sandbox/session/other/task.2')])
def test_sandbox_of_a_task_elsewhere(sandbox: str, path: str) -> None:
    assert sandboxes('/scratch').task('task.1', sandbox) == path
