"""Pilots on LGI: with an adaptor of radical.saga that a site has installed, and without."""

from __future__ import annotations

import importlib.util
import json
import os
from functools import cache
from pathlib import Path

import pytest
from test_batch_launcher import Site, a_pilot, a_platform, site

from rp_api.errors import PlatformError
from rp_client.launcher.base import Start
from rp_client.launcher.batch.launcher import BatchLauncher
from rp_client.launcher.batch.saga import adaptors
from rp_client.platform_check.check import way

URL = 'lgi://host/'

__all__ = ['site']   # a fixture


@pytest.fixture(autouse=True)
def _looked_up_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Adaptors are looked for once in a process; no configuration of the user counts."""
    monkeypatch.setattr(adaptors, '_adaptors', cache(adaptors._adaptors.__wrapped__))
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(tmp_path))


@pytest.fixture
def adaptor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An adaptor for LGI is installed, and named in radical.saga's configuration."""
    path = tmp_path / '.radical' / 'saga' / 'configs' / 'registry_default.json'
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({'adaptor_registry': ['lgi_adaptor']}))
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join([str(Path(__file__).parent), os.environ.get('PYTHONPATH', '')]))


def test_without_an_adaptor() -> None:
    with pytest.raises(PlatformError) as caught:
        BatchLauncher.check(a_platform(URL), a_pilot())
    said = str(caught.value)
    assert said.startswith('lgi://host/ needs an adaptor of radical.saga for jobs at lgi:// URLs, and there is none: '
                           'radical.saga 1.')
    assert ' has found adaptors for cobalt, ' in said
    assert 'add its module to adaptor_registry in ~/.radical/saga/configs/registry_default.json' in said
    assert said.endswith('or set job_manager_endpoint of the platform to fork, ssh or gsissh with a host, or to one of '
                         'cobalt, condor, flux, loadl, lsf, pbspro, sge, slurm, torque')


def test_without_radical_saga(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(PlatformError, match=r'needed for lgi://host/ and is not installed: pip install "rp-client'):
        BatchLauncher.check(a_platform(URL), a_pilot())


def test_a_library_that_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / '.radical' / 'saga' / 'configs' / 'registry_default.json'
    path.parent.mkdir(parents=True)
    path.write_text('no JSON')
    with pytest.raises(PlatformError, match=r'the adaptors of radical\.saga cannot be loaded: .*'):
        BatchLauncher.check(a_platform(URL), a_pilot())


def test_platforms_that_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = a_platform('lgi://localhost/')
    monkeypatch.setattr(adaptors, '_adaptors', lambda: adaptors.Adaptors('1.0', [], ['lgi']))
    with pytest.raises(PlatformError, match=r'only an adaptor of radical\.saga reaches: it cannot be checked'):
        way(platform)
    monkeypatch.setattr(adaptors, '_adaptors', lambda: adaptors.Adaptors('1.0', [], ['ssh']))
    with pytest.raises(PlatformError, match=r'lgi://localhost/ needs an adaptor of radical\.saga'):
        way(platform)


def launch(site: Site, uid: str, script: str) -> None:
    site.launcher.launch([Start(uid, site.base / uid, {'script': script}, a_platform(URL), a_pilot(uid=uid))])


@pytest.mark.usefixtures('adaptor')
def test_jobs_of_an_adaptor(site: Site) -> None:
    """They are submitted, watched and cancelled."""
    BatchLauncher.check(a_platform(URL), a_pilot())
    site.launcher.expect(a_platform(URL))
    launch(site, 'pilot.0', 'echo $TOLD; pwd')
    launch(site, 'pilot.1', 'echo no such module >&2; exit 3')
    launch(site, 'pilot.2', 'touch started; sleep 60')
    assert site.end('pilot.0')[:3] == ('pilot.0', None, f'it\n{site.base}/pilot.0\n')
    assert site.handles['pilot.0']['url'] == URL
    failed = site.end('pilot.1')
    job = site.handles['pilot.1']['job']
    assert (failed.reason, failed.stderr) == (f'job {job} of pilot.1 on {URL} failed: exit code 3', 'no such module\n')
    site.wait((site.base / 'pilot.2' / 'started').exists)
    site.launcher.kill('pilot.2')
    assert 'cancel' in str(site.end('pilot.2').reason)
