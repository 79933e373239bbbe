"""What stage 0 copes with, in every kind of shell that may be /bin/sh somewhere."""

from __future__ import annotations

import json
import os
import pwd
import sys
from pathlib import Path
from typing import Any

import pytest

from bootstrap.jobs_of_pilots import STAGE_1, Job, a_platform, environment, program


@pytest.fixture(scope='module')
def standing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with something that takes the place of the agent."""
    base = tmp_path_factory.mktemp('standing')
    (base / 'modules' / 'rp_agent' / 'bootstrap').mkdir(parents=True)
    for name, text in (('__init__.py', ''), ('bootstrap/__init__.py', ''), ('bootstrap/stage_1.py', STAGE_1)):
        (base / 'modules' / 'rp_agent' / name).write_text(text)
    return environment(base / 've', [str(base / 'modules')])


def ran(job: Job) -> dict[str, Any]:
    """What the agent has seen."""
    assert job.run() == 0, job.err
    assert job.err == ''
    found: dict[str, Any] = json.loads((job.sandbox / 'ran.json').read_text())
    return found


@pytest.mark.parametrize('home', [None, ''])
def test_the_user_database_knows_the_home_directory(job: Job, standing: Path, home: str | None) -> None:
    job.environ = {name: value for name, value in job.environ.items() if name != 'HOME'}
    job.environ |= {} if home is None else {'HOME': home}
    job.bring(a_platform(virtenv_mode='use', virtenv=str(standing)))
    assert ran(job)['environ']['HOME'] == pwd.getpwuid(os.getuid()).pw_dir


@pytest.fixture
def odd(job: Job, standing: Path) -> Job:
    """A job whose environment has all that shells may read, and names that need quotes."""
    return _odd(job, standing)


@pytest.fixture
def odd_and_rare(rare_job: Job, standing: Path) -> Job:
    return _odd(rare_job, standing)


def _odd(job: Job, standing: Path) -> Job:
    talkative = program(job.base / 'rc', 'echo "Welcome! Have you read the news?"; read answer; exit 1')
    job.environ |= {'ENV': str(talkative), 'BASH_ENV': str(talkative), 'VIRTUAL_ENV': '/of/the client',
                    'PATH': '/of/the client/bin:/usr/bin:/bin:/last one', 'PYTHONPATH': '/of/the client/lib',
                    'PYTHONHOME': '/nowhere', 'BASH_FUNC_f%%': '() { echo f; }', 'CDPATH': '/tmp',
                    'POSIXLY_CORRECT': '1'}
    job.sandbox = job.base / "it's a \"$HOME\" of ümläute"
    job.sandbox.mkdir()
    job.config |= {'pilot_sandbox': str(job.sandbox), 'pilot': 'pilot.0000'}
    (job.base / 'set up').write_text('export SET_UP=yes; cd /')
    job.environ['SITE'] = str(standing.parent)
    job.bring(a_platform(virtenv_mode='use', virtenv='${SITE}/ve', pre_bootstrap_0=[
        f'source "{job.base}/set up"', "export QUOTED='it'\\''s' ; echo said", f'cd "{job.base}"', 'set -eu',
        'set -- a b', 'x=1; export PYTHONPATH=/of/the/platform']))
    return job


def _check(job: Job, standing: Path) -> None:
    found = ran(job)
    assert found['prefix'] == str(standing)
    environ = found['environ']
    assert (environ['SET_UP'], environ['QUOTED'], environ['VIRTUAL_ENV']) == ('yes', "it's", str(standing))
    assert environ['PATH'] == f'{standing}/bin:/usr/bin:/bin:/last one'
    assert environ['PYTHONPATH'] == '/of/the/platform'
    assert environ['RP_PILOT_SANDBOX'] == str(job.sandbox)
    assert 'PYTHONHOME' not in environ
    assert job.out.splitlines() == ['said']
    assert sorted(os.listdir(job.sandbox)) == [
        'agent_0.cfg', 'bootstrap_0.prof', 'bootstrap_0.sh', 'pilot.sh', 'ran.json']


def test_odd_surroundings(odd: Job, standing: Path) -> None:
    _check(odd, standing)


def test_odd_surroundings_in_rare_shells(odd_and_rare: Job, standing: Path) -> None:
    _check(odd_and_rare, standing)


def test_module_is_what_the_site_says(job: Job, standing: Path) -> None:
    """The output of all commands goes to that of the job."""
    program(job.base / 'modules' / 'init' / 'sh', 'module() { echo "module $*"; export LOADED=$2; }')
    job.environ['MODULESHOME'] = str(job.base / 'modules')
    job.bring(a_platform(virtenv_mode='use', virtenv=str(standing), pre_bootstrap_0=['module load python/3.11']))
    assert ran(job)['environ']['LOADED'] == 'python/3.11'
    assert job.out == 'module load python/3.11\n'


def test_the_first_good_python_is_taken(job: Job, standing: Path) -> None:
    old = program(job.base / 'bin' / 'python3', 'echo "Python 3.6"')
    link = old.with_name('python3.12')
    link.symlink_to(standing / 'bin' / 'python')
    job.environ |= {'PATH': f'{job.base}/bin:/usr/bin:/bin', 'PYTHONPATH': str(standing.parent / 'modules')}
    job.bring(a_platform())
    assert ran(job)['environ']['PYTHONPATH'] == str(standing.parent / 'modules')


def test_python_of_the_client(job: Job, standing: Path) -> None:
    """Mode local: what the application runs in, a virtual environment or not."""
    job.client = job.client._replace(executable=os.path.realpath(sys.executable), environ={
        'PYTHONPATH': str(standing.parent / 'modules'), 'RADICAL_PILOT_LOG_LVL': "it's",
        'RADICAL_PILOT_DBURL': 'secret'})
    job.bring(a_platform(virtenv_mode='local'))
    assert 'secret' not in (job.sandbox / 'pilot.sh').read_text()
    environ = ran(job)['environ']
    assert environ['RADICAL_PILOT_LOG_LVL'] == "it's"
    assert 'VIRTUAL_ENV' not in environ


@pytest.fixture
def spooled(job: Job, standing: Path) -> Job:
    """A job whose script the batch system has copied elsewhere."""
    job.bring(a_platform(virtenv_mode='use', virtenv=str(standing)))
    copy = job.base / 'slurm_script'
    copy.write_text((job.sandbox / 'bootstrap_0.sh').read_text())
    job.command[-1] = 'slurm_script'
    return job


def test_script_is_elsewhere(spooled: Job, standing: Path) -> None:
    """The environment says where the sandbox is."""
    assert ran(spooled)['prefix'] == str(standing)
