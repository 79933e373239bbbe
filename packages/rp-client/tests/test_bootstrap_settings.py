"""What a pilot's job is made of: values in, files and a command out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_client import __version__
from rp_client.bootstrap import Client, Failure, prepare, read_failure, settings

CONFIG: dict[str, Any] = {
    'pilot': 'pilot.0000', 'session': 'rp.session.me', 'resource': 'site.machine', 'profile': True,
    'pilot_sandbox': '/work/s/pilot.0000', 'session_sandbox': '/work/s', 'resource_sandbox': '/work',
    'coordination': {'backend': 'hub', 'endpoint': 'tcp://10.0.0.1:4711'}}
CLIENT = Client({}, '/home/me/ve', '/home/me/ve/bin/python', Path('/nowhere'), 1e9)


def a_platform(**values: Any) -> ResourceConfig:
    return ResourceConfig({'label': 'site.machine', 'resource_manager': 'FORK',
                           'launch_methods': {'order': ['FORK']}} | values)


def variables(platform: ResourceConfig, config: dict[str, Any] | None = None, client: Client = CLIENT,
              **environ: str) -> dict[str, str]:
    """The variables that a shell has after it has read the settings."""
    text = prepare({**CONFIG, **(config or {})}, platform, client).files['pilot.sh'].decode()
    names = [line.partition('=')[0].removeprefix('export ') for line in text.splitlines()
             if '=' in line and not line.startswith('rp_need')]
    prints = ''.join(f'printf "%s\\0" "${name}"\n' for name in names)
    script = f'rp_need() {{ :; }}\n{text}\n{prints}'
    done = subprocess.run(['/bin/sh', '-eu'], input=script, env=environ, capture_output=True, text=True, check=True)
    return dict(zip(names, done.stdout.split('\0'), strict=False))


def test_the_job() -> None:
    bootstrap = prepare(CONFIG, a_platform(), CLIENT)
    assert set(bootstrap.files) == {'bootstrap_0.sh', 'pilot.sh', 'agent_0.cfg'}
    assert bootstrap.command == ['/bin/sh', '/work/s/pilot.0000/bootstrap_0.sh']
    assert bootstrap.environment == {'RP_PILOT_SANDBOX': '/work/s/pilot.0000'}
    assert json.loads(bootstrap.files['agent_0.cfg']) == {**CONFIG, 'submitted': 1e9}


def test_this_client() -> None:
    client = Client.here()
    assert client.executable.startswith('/')
    assert client.environ['PATH']


def test_values_are_quoted() -> None:
    lines = ['echo "$HOME" \'it\'', 'module load a; b=`c`', 'line\nfeed']
    client = CLIENT._replace(environ={'RADICAL_X': "$(rm -rf /) 'x'", 'PYTHONPATH': 'a b', 'OTHER': 'x',
                                      'RADICAL_BAD-NAME': 'x', 'RADICAL_PILOT_DBURL': 'mongodb://me:secret@host'})
    found = variables(a_platform(pre_bootstrap_0=lines), client=client)
    assert [found[f'rp_pre_{number}'] for number in (1, 2, 3)] == lines
    assert (found['rp_pre_count'], found['RADICAL_X']) == ('3', "$(rm -rf /) 'x'")
    assert (found['rp_client_path'], found['rp_virtenv'], found['rp_complete']) == ('a b', '/home/me/ve', 'yes')
    assert not {'OTHER', 'RADICAL_BAD-NAME', 'RADICAL_PILOT_DBURL'} & set(found)


@pytest.mark.parametrize(('path', 'expected'), [
    ('', ''), ('/a b/ve', '/a b/ve'), ('$WORK/ve', '/my work/ve'), ('${WORK}ve', '/my workve'), ('~', '/home/me'),
    ('~/ve', '/home/me/ve'), ('/x/~me', '/x/~me'), ("/it's/$WORK", "/it's//my work"), ('$(id)/`id`', '$(id)/`id`')])
def test_paths_of_the_machine(path: str, expected: str) -> None:
    text = f'x={settings.expandable(path)}; printf %s "$x"'
    done = subprocess.run(['/bin/sh', '-c', text], env={'WORK': '/my work', 'HOME': '/home/me'}, capture_output=True,
                          text=True, check=True)
    assert done.stdout == expected


@pytest.mark.parametrize(('version', 'expected'), [
    ('installed', f'rp-agent=={__version__} rp-raptor=={__version__}'), ('release', 'rp-agent>=2,<3 rp-raptor>=2,<3'),
    ('@2.1', 'rp-agent==2.1 rp-raptor==2.1'), ('@v2.1.0rc1', 'rp-agent==2.1.0rc1 rp-raptor==2.1.0rc1')])
def test_versions(version: str, expected: str) -> None:
    assert variables(a_platform(rp_version=version))['rp_requirements'] == expected


@pytest.mark.parametrize('version', ['devel', '@devel', '@a1b2c3d', '@', '2.0'])
def test_versions_that_are_none(version: str) -> None:
    with pytest.raises(PlatformError, match=f"rp_version of site.machine is '{version}', allowed are 'installed'"):
        prepare(CONFIG, a_platform(rp_version=version), CLIENT)


@pytest.mark.parametrize(('mode', 'virtenv', 'expected'), [
    ('local', '', '/home/me/ve'), ('none', '/ve', ''), ('create', '', f'/work/ve.site.machine.{__version__}'),
    ('private', '', '/work/s/pilot.0000/virtenv'), ('private', '/ve', '/ve'), ('use', '$W/ve', '/w/ve')])
def test_environments(mode: str, virtenv: str, expected: str) -> None:
    assert variables(a_platform(virtenv_mode=mode, virtenv=virtenv), W='/w')['rp_virtenv'] == expected


def test_environment_to_use_must_have_a_name() -> None:
    with pytest.raises(PlatformError, match=r'virtenv_mode of site.machine is use, but virtenv'):
        prepare(CONFIG, a_platform(virtenv_mode='use'), CLIENT)


@pytest.mark.parametrize(('mode', 'version', 'program', 'tree'), [
    ('local', 'installed', False, ''), ('use', 'release', True, '/work/s/rp_install'), ('create', 'release', True, ''),
    ('recreate', 'installed', True, ''), ('none', 'installed', False, '')])
def test_what_is_installed_where(mode: str, version: str, program: bool, tree: str) -> None:
    platform = a_platform(virtenv_mode=mode, rp_version=version, virtenv='/ve')
    assert ('bootstrap_0.py' in prepare(CONFIG, platform, CLIENT).files) == program
    assert variables(platform)['rp_tree'] == tree


def test_bundle(tmp_path: Path) -> None:
    """That of the platform, before that for all; a sentence says how to make one."""
    client = CLIENT._replace(bundles=tmp_path)
    platform = a_platform(rp_version='local')
    with pytest.raises(PlatformError, match=r'there is neither site.machine.tar nor default.tar in .*`rp bundle`'):
        prepare(CONFIG, platform, client)
    for name in ('default', 'site.machine'):
        (tmp_path / f'{name}.tar').touch()
        assert prepare(CONFIG, platform, client).copies == {'bootstrap_0.tar': tmp_path / f'{name}.tar'}


def test_tunnel() -> None:
    found = variables(a_platform(forward_tunnel_endpoint='me@login1:2222'))
    assert (found['rp_tunnel'], found['rp_tunnel_port']) == ('me@login1', '2222')
    assert found['rp_tunnel_to'] == '10.0.0.1:4711'
    assert variables(a_platform())['rp_tunnel'] == ''


@pytest.mark.parametrize(('url', 'end'), [
    ('mongodb://db.host', 'db.host:27017'), ('mongodb://me:p%40ss@db.host:4711/rp?w=1', 'db.host:4711'),
    ('mongodb://[::1]:4711/', '[::1]:4711'), ('mongodb://db.host?appname=a@b', 'db.host:27017')])
def test_tunnel_to_a_database(url: str, end: str) -> None:
    config = {**CONFIG, 'coordination': {'backend': 'mongodb', 'endpoint': 'mongodb://...', 'url': url}}
    found = variables(a_platform(forward_tunnel_endpoint='login'), config=config)
    assert found['rp_tunnel_to'] == end


@pytest.mark.parametrize(('through', 'access', 'words'), [
    ('BIND_ADDRESS', CONFIG['coordination'], "'BIND_ADDRESS' is not supported"),
    ('login', {'backend': 'hub', 'endpoint': 'ipc:///tmp/x/s'}, 'not to ipc:///tmp/x/s'),
    *(('login', {'backend': 'mongodb', 'endpoint': 'mongodb://the.servers', 'url': url}, 'names mongodb://the.servers')
      for url in ('mongodb://a,b/rp', 'mongodb+srv://me:x@a/rp', 'mongodb://a:1/rp?w=1&tls=true'))])
def test_tunnel_to_nowhere(through: str, access: dict[str, str], words: str) -> None:
    with pytest.raises(PlatformError, match=words):
        prepare({**CONFIG, 'coordination': access}, a_platform(forward_tunnel_endpoint=through), CLIENT)


def test_failure() -> None:
    content = b'{"stage": 0, "exit_code": 12, "sentence": "no Python\\n", "file": "\\n", "tail": "a\\nb \xff\\n"}'
    assert read_failure(content) == Failure(0, 12, 'no Python', '', 'a\nb \ufffd')


@pytest.mark.parametrize('content', [b'', b'{"stage": 0, "exit_co', b'[]', b'{"stage": 1}'])
def test_failure_that_is_cut_off(content: bytes) -> None:
    assert read_failure(content) is None
