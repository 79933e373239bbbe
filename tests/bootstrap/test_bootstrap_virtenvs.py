"""Virtual environments in all modes, made with real pip from wheels of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bootstrap.jobs_of_pilots import LABEL, Job, a_platform, environment, eventually, program, wheel, wheels
from rp_client import __version__

# environments are made and filled, which takes long where much else is done
pytestmark = pytest.mark.timeout(240)

# mark that tells which process has made an environment
MADE = 'made-by-hand'


@pytest.fixture(scope='module')
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with wheels that take the place of rp-agent and rp-raptor."""
    return wheels(tmp_path_factory.mktemp('index') / 'wheels')


@pytest.fixture
def site(tmp_path: Path, index: Path) -> Job:
    """A job on a machine whose package index is that directory."""
    job = Job(tmp_path, ['/bin/sh'])
    at(job, index)
    return job


def at(job: Job, index: Path) -> None:
    job.environ |= {'PIP_NO_INDEX': '1', 'PIP_FIND_LINKS': str(index), 'PYTHONPATH': '/nowhere',
                    'PATH': f'{os.path.dirname(sys.executable)}:/usr/bin:/bin'}


def ran(job: Job) -> dict[str, Any]:
    """What the agent has said about the Python that it runs in."""
    assert job.run() == 0, job.err
    found: dict[str, Any] = json.loads((job.sandbox / 'ran.json').read_text())
    return found


def events(job: Job) -> list[str]:
    return [line.split(',')[1] for line in (job.sandbox / 'bootstrap_0.prof').read_text().splitlines()[2:]]


def test_create(site: Job) -> None:
    """It is made once, with the agent in the version of the client, where all sessions find it."""
    site.bring(a_platform(virtenv_mode='create'))
    (site.sandbox / 'tarfile.py').write_text('a file of the user, and not the module that we want')
    path = site.base / f've.{LABEL}.{__version__}'
    found = ran(site)
    assert found['prefix'] == found['environ']['VIRTUAL_ENV'] == str(path)
    assert found['environ']['PATH'].startswith(f'{path}/bin:')
    assert 'PYTHONPATH' not in found['environ']
    assert events(site) == [
        'bootstrap_0_start', 've_setup_start', 've_create_start', 've_create_stop', 'rp_install_start',
        'rp_install_stop', 've_setup_stop', 've_activate_start', 've_activate_stop', 'bootstrap_0_stop', 'END']
    assert sorted(name.name for name in site.base.glob('ve.*')) == [path.name]
    (path / MADE).touch()
    again = Job(site.base, site.shell, 'pilot.0001')
    again.environ = site.environ | {'PIP_FIND_LINKS': '/nowhere'}
    again.bring(a_platform(virtenv_mode='create'))
    assert ran(again)['prefix'] == str(path)
    assert (path / MADE).exists()
    assert 've_create_start' not in events(again)


def test_recreate_and_update(site: Job) -> None:
    """Once in a session, as pilots may run in it already."""
    path = site.base / 'environments' / 've'
    for name, mode, session, kept in (('pilot.0000', 'recreate', 'a', False), ('pilot.0001', 'recreate', 'a', True),
                                      ('pilot.0002', 'update', 'b', True), ('pilot.0003', 'recreate', 'c', False)):
        job = site if name == 'pilot.0000' else Job(site.base, site.shell, name)
        job.environ = dict(site.environ)
        job.config['session'] = session
        job.bring(a_platform(virtenv_mode=mode, virtenv=str(path)))
        assert ran(job)['prefix'] == str(path)
        assert (path / MADE).exists() == kept
        assert ('ve_update_start' in events(job)) == (mode == 'update')
        (path / MADE).touch()


def test_private(site: Job) -> None:
    """It belongs to one pilot, and must not be there before."""
    site.bring(a_platform(virtenv_mode='private'))
    assert ran(site)['prefix'] == f'{site.sandbox}/virtenv'
    failure = site.fails()
    assert failure.sentence == (
        f'the virtual environment {site.sandbox}/virtenv is there already, but virtenv_mode is private')


def test_many_pilots_create_one(tmp_path: Path, index: Path) -> None:
    """They come at the same time: one makes it, the others wait for that."""
    jobs = [Job(tmp_path / str(number), ['/bin/sh']) for number in range(4)]
    for job in jobs:
        at(job, index)
        job.bring(a_platform(virtenv_mode='create', virtenv=str(tmp_path / 've')))
        job.start()
    assert [job.wait() for job in jobs] == [0] * len(jobs), [job.err for job in jobs]
    assert sum('ve_create_start' in events(job) for job in jobs) == 1
    assert sorted(path.name for path in tmp_path.glob('ve*')) == ['ve']


def test_a_half_made_one_is_made_anew(site: Job) -> None:
    """Its maker was killed: its lock is there, and its mark."""
    path = site.base / 've'
    (path / 'bin').mkdir(parents=True)
    (site.base / 've.making').touch()
    (site.base / 've.lock').mkdir()
    gone = subprocess.Popen(['true'])
    gone.wait()
    (site.base / 've.lock' / 'owner').write_text(f'{os.uname().nodename} {gone.pid}\n7\n')
    site.bring(a_platform(virtenv_mode='create', virtenv=str(path)))
    assert ran(site)['prefix'] == str(path)
    assert sorted(each.name for each in site.base.glob('ve*')) == ['ve']


def test_release_beside_a_static_environment(site: Job) -> None:
    """What cannot be written is used, and the agent is installed for the session."""
    static = environment(site.base / 'static', [os.path.dirname(os.path.dirname(str(__import__('pip').__file__)))])
    site.bring(a_platform(virtenv_mode='use', virtenv=str(static), rp_version='release'))
    found = ran(site)
    assert found['prefix'] == str(static)
    assert found['file'].startswith(f'{site.base}/session/rp_install/rp_agent/')


def test_version_that_does_not_exist(site: Job) -> None:
    failure = site.fails(virtenv_mode='create', virtenv=str(site.base / 've'), rp_version='@7.0')
    assert failure.sentence.startswith('rp-agent==7.0 rp-raptor==7.0 cannot be installed: ERROR: No matching '
                                       'distribution found for rp-agent==7.0')
    assert failure.file == f'{site.sandbox}/bootstrap_0.log'
    assert list(site.base.glob('ve*')) == []


def test_package_index_is_not_reached(site: Job) -> None:
    del site.environ['PIP_NO_INDEX']
    site.environ |= {'PIP_INDEX_URL': 'http://127.0.0.1:1/simple', 'PIP_EXTRA_INDEX_URL': '', 'PIP_FIND_LINKS': '',
                     'PIP_CONFIG_FILE': '/dev/null', 'no_proxy': '*'}
    static = environment(site.base / 'static', [os.path.dirname(os.path.dirname(str(__import__('pip').__file__)))])
    failure = site.fails(virtenv_mode='use', virtenv=str(static), rp_version='release')
    assert f'as {os.uname().nodename} does not reach the package index: make a bundle' in failure.sentence


def test_bundle(site: Job, index: Path, tmp_path: Path) -> None:
    """Nothing but the client's bundle is needed, and nothing of it stays in the sandbox."""
    site.client.bundles.mkdir()
    with tarfile.open(site.client.bundles / f'{LABEL}.tar', 'w') as archive:
        for path in index.iterdir():
            archive.add(path, path.name)
    site.environ['PIP_FIND_LINKS'] = '/nowhere'
    site.bring(a_platform(virtenv_mode='create', virtenv=str(site.base / 've'), rp_version='local'))
    assert ran(site)['prefix'] == str(site.base / 've')
    assert list((site.base / 've').glob('lib/*/site-packages/rp_raptor'))
    assert not {'bootstrap_0.tar', 'bootstrap_0.wheels', 'bootstrap_0.log'} & set(os.listdir(site.sandbox))
    assert [event for event in events(site) if event.startswith('untar')] == ['untar_start', 'untar_stop']


def test_bundle_is_damaged(site: Job) -> None:
    site.client.bundles.mkdir()
    (site.client.bundles / 'default.tar').write_bytes(b'x' * 1000)
    static = environment(site.base / 'static', [])
    failure = site.fails(virtenv_mode='use', virtenv=str(static), rp_version='local')
    assert failure.sentence.startswith(f'the bundle {site.sandbox}/bootstrap_0.tar cannot be unpacked: ')


def test_no_room_for_it(site: Job) -> None:
    (site.base / 'file').touch()
    failure = site.fails(virtenv_mode='create', virtenv=f'{site.base}/file/ve')
    assert failure.sentence == (
        f'{site.base}/file/ve cannot be made on {os.uname().nodename}: File exists: {site.base}/file')


def test_conda(site: Job, index: Path) -> None:
    """It is made by conda where the platform says so."""
    site.environ['PATH'] = f'{site.base}/bin:{site.environ["PATH"]}'
    program(site.base / 'bin' / 'conda',
            f'echo "$@" > "{site.base}/asked"\nexec {sys.executable} -m venv --without-pip "$5"')
    site.bring(a_platform(virtenv_mode='create', virtenv=str(site.base / 've'), python_dist='anaconda'))
    assert ran(site)['prefix'] == str(site.base / 've')
    assert (site.base / 'asked').read_text() == f'create --yes --quiet --prefix {site.base}/ve python>=3.10 pip\n'


def test_told_to_end_while_installing(site: Job) -> None:
    """What runs then ends as well, and the lock is gone."""
    site.environ['PATH'] = f'{site.base}/bin:{site.environ["PATH"]}'
    program(site.base / 'bin' / 'conda', f'touch "{site.base}/begun"\nexec sleep 1000')
    process = site.start(virtenv_mode='create', virtenv=str(site.base / 've'), python_dist='anaconda')
    eventually((site.base / 'begun').exists)
    process.send_signal(signal.SIGTERM)
    failure = site.failure(site.wait())
    assert failure.exit_code == 143
    assert failure.sentence == f'the job was told to end (SIGTERM) while making {site.base}/ve'
    assert list(site.base.glob('ve*')) == []


def test_another_version_is_there(tmp_path: Path) -> None:
    """Of several releases, the one that is asked for is taken."""
    directory = wheels(tmp_path / 'wheels')
    for name in ('rp-agent', 'rp-raptor'):
        wheel(directory, name, {f'{name.replace("-", "_")}/__init__.py': ''}, '2.9')
    job = Job(tmp_path, ['/bin/sh'])
    at(job, directory)
    job.bring(a_platform(virtenv_mode='private', rp_version=f'@v{__version__}'))
    assert ran(job)['prefix'] == f'{job.sandbox}/virtenv'
