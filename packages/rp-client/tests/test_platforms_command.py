"""`rp platforms`: the list, what is shown, and checks against programs on PATH that answer as a platform would."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rp_api.errors import PlatformError
from rp_api.platforms import ResourceConfig
from rp_client.bootstrap.prepare import Client
from rp_client.cli.platforms import platforms
from rp_client.platform_check import check as check_module
from rp_client.platform_check.check import Finding, check, findings, way
from rp_client.platform_check.probe import script

MINE = {'description': 'My cluster', 'resource_manager': 'SLURM', 'launch_methods': {'order': ['SRUN', 'MPIRUN']},
        'schemas': {'local': {'job_manager_endpoint': 'slurm://localhost/'},
                    'ssh': {'job_manager_endpoint': 'slurm+ssh://me@far.away:2222/'}}}

PROGRAMS = {
    'sbatch': 'exit 0',
    'sinfo': 'case "$*" in *" -p work") echo "work* up";; *" -p night") echo "night down";; '
             '*) echo "sinfo: no such partition" >&2; exit 1;; esac',
    'sacctmgr': 'exit 0',
    'srun': 'exit 0',
    'ssh': 'echo Welcome; echo "$@" >> "$SSH_ARGUMENTS"; while test "$1" != me@far.away; do shift; done; '
           'shift; eval "$*"',
}


@pytest.fixture(autouse=True)
def bin_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for programs, the first on PATH, and no files of the user."""
    directory = tmp_path / 'bin'
    directory.mkdir()
    monkeypatch.setenv('PATH', str(directory), prepend=os.pathsep)
    monkeypatch.setenv('RADICAL_CONFIG_USER_DIR', str(tmp_path))
    monkeypatch.setenv('SSH_ARGUMENTS', str(tmp_path / 'ssh'))
    for name, text in PROGRAMS.items():
        put(directory, name, text)
    return directory


def put(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)


def config(**values: Any) -> ResourceConfig:
    """My cluster, reached by the schema `local` unless another one is named."""
    schema = values.pop('schema', 'local')
    found = ResourceConfig({**MINE, **values})
    found.update({name: value for name, value in found.schemas[schema].items() if value})
    return found


def checked(**values: Any) -> dict[str, tuple[str, str]]:
    """What is found, by name: the verdict and the words."""
    return {name: (verdict, words) for verdict, name, words in check(config(**values))}


# list and show


def test_all_platforms_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert platforms(['list']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 50
    assert [line.split() for line in lines if 'ornl.frontier ' in line] == [
        ['ornl.frontier', 'SLURM', '64', 'cores,', '8', 'GPUs', 'OLCF', 'Frontier']]


def test_the_list_can_be_narrowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert platforms(['list', 'anl.*']) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ['anl.aurora', 'anl.polaris']
    assert platforms(['list', '--json', 'anl.polaris']) == 0
    assert json.loads(capsys.readouterr().out)['anl.polaris']['gpus_per_node'] == 4
    assert platforms(['list', 'nothing.*']) == 1
    assert "no label matches 'nothing.*'" in capsys.readouterr().err


def test_retired_platforms_are_listed_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert platforms(['list', 'anl.*', '--all']) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        'anl.aurora', 'anl.polaris', 'anl.theta']
    assert platforms(['list', 'ornl.titan']) == 1
    assert 'except retired ones: add --all' in capsys.readouterr().err
    assert platforms(['show', 'ornl.titan']) == 0


def test_what_is_shown_has_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert platforms(['show', 'anl.polaris']) == 0
    shown = {tuple(line.split()) for line in capsys.readouterr().out.splitlines()}
    assert {('mem_per_node', '512000', 'MB'), ('gpus_per_node', '4', 'GPUs'), ('hb_delay', '5', 's'),
            ('resource_manager', 'PBSPRO')} <= shown
    assert platforms(['show', 'uva.rivanna']) == 0
    assert 'cores_per_node                  as the machine or the batch system reports' in capsys.readouterr().out


def test_what_is_shown_as_json_can_stand_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert platforms(['show', 'ornl.frontier', '--json']) == 0
    shown = json.loads(capsys.readouterr().out)
    shown['frontier'].pop('label')
    directory = tmp_path / '.radical' / 'pilot' / 'configs'
    directory.mkdir(parents=True)
    (directory / 'resource_mine.json').write_text(json.dumps(shown))
    assert platforms(['show', 'mine.frontier']) == 0


def test_unknown_labels_suggest_the_nearest() -> None:
    with pytest.raises(PlatformError, match=r"did you mean 'ornl\.frontier'"):
        platforms(['show', 'ornl.fontier'])


# check


def test_a_platform_as_it_should_be(tmp_path: Path, bin_directory: Path) -> None:
    found = checked(default_queue='work', default_remote_workdir=f'{tmp_path}/to/be/made',
                    pre_bootstrap_0=['VALUE="a b"', 'test "$VALUE" = "a b"'])
    assert found['batch'] == ('ok', f'{bin_directory}/sbatch')
    assert found['queue'] == ('ok', 'work is there')
    assert found['workdir'][0] == 'ok'
    assert found['workdir'][1].startswith(f'{tmp_path}, ')
    assert found['command'] == ('ok', 'test "$VALUE" = "a b"')
    assert found['agent'][0] == 'ok'
    assert {verdict for verdict, _ in found.values()} <= {'ok', 'note'}


@pytest.mark.parametrize(('values', 'name', 'words'), [
    ({'default_queue': 'wrong'}, 'queue', 'default_queue wrong is not there: sinfo: no such partition'),
    ({'default_queue': 'night'}, 'queue', 'night does not start jobs: night down'),
    ({'default_queue': 'work:wrong'}, 'qos', 'the QOS wrong of default_queue is not there'),
    ({'default_queue': 'wrong', 'queue_type': 'qos'}, 'qos', 'the QOS wrong of default_queue is not there'),
    ({'default_queue': 'work', 'queue_type': 'qos'}, 'qos',
     'default_queue work is no QOS, but a partition: queue_type must be partition'),
    ({'default_remote_workdir': '/dev/null/x'}, 'workdir', '/dev/null cannot be written to'),
    ({'default_remote_workdir': '$NOT_SET_AT_ALL'}, 'workdir', 'default_remote_workdir $NOT_SET_AT_ALL is no absolute'),
    ({'pre_bootstrap_0': ['echo "no such module" >&2; false']}, 'command', 'failed: no such module'),
    ({'pre_bootstrap_0': ['exit 0']}, 'shell', 'ended early, after '),
    ({'virtenv_mode': 'use', 'virtenv': '/not/there'}, 'python', '/not/there/bin/python is not there'),
    ({'virtenv_mode': 'use', 'virtenv': '/not/there'}, 'agent', 'the agent cannot be used: '),
    ({'virtenv_mode': 'private', 'virtenv': '/tmp'}, 'virtenv', '/tmp is there already'),
    ({'virtenv_mode': 'create', 'virtenv': '/tmp'}, 'virtenv', '/tmp is there, without rp-agent'),
    ({'virtenv_mode': 'none', 'python_interpreter': '/no/python'}, 'python', '/no/python is no Python 3.10 or later'),
    ({'launch_methods': {'order': ['JSRUN', 'POE']}}, 'launch', 'none of the launch methods can be used here')])
def test_what_is_not_as_it_should_be(values: dict[str, Any], name: str, words: str) -> None:
    verdict, said = checked(**values)[name]
    assert (verdict, words in said) == ('bad', True), said


def test_a_queue_may_be_a_quality_of_service(bin_directory: Path) -> None:
    put(bin_directory, 'sacctmgr', 'test "$5" = regular && echo regular')
    assert checked(default_queue='regular', queue_type='qos')['qos'] == ('ok', 'regular is there')
    found = checked(default_queue='work:regular')
    assert (found['queue'], found['qos']) == (('ok', 'work is there'), ('ok', 'regular is there'))
    assert checked(default_queue='regular')['queue'] == (
        'bad', 'default_queue regular is no partition, but a QOS: queue_type must be qos')


@pytest.mark.parametrize(('system', 'program', 'answer'), [
    ('pbspro', 'qstat', r'test "$*" = "-Q -f work" && printf "Queue: work\n    started = True\n"'),
    ('lsf', 'bqueues', 'test "$1" = work && echo "work  30  Open:Active  - -"'),
    ('flux', 'flux', 'test "$1" != queue || echo work enabled started'),
    ('sge', 'qconf', 'test "$*" = "-sq work" && echo qname'), ('loadl', 'llclass', 'test "$1" = work && echo work')])
def test_queues_of_other_batch_systems(bin_directory: Path, system: str, program: str, answer: str) -> None:
    put(bin_directory, program, answer)
    for name in ('qsub', 'bsub', 'llsubmit'):
        put(bin_directory, name, 'exit 0')
    schemas = {'local': {'job_manager_endpoint': f'{system}://localhost/'}}
    assert checked(schemas=schemas, default_queue='work')['queue'] == ('ok', 'work is there')
    assert checked(schemas=schemas, default_queue='other')['queue'][0] == 'bad'


@pytest.mark.parametrize(('system', 'program', 'answer', 'words'), [
    ('pbspro', 'qstat', r'printf "Queue: work\n    enabled = True\n    started = False\n"', 'started = False'),
    ('torque', 'qstat', r'printf "Queue: work\n    enabled = False\n    started = True\n"', 'enabled = False'),
    ('lsf', 'bqueues', r'printf "QUEUE_NAME  PRIO STATUS\nwork  30  Open:Inact  - -\n"', 'work  30  Open:Inact  - -'),
    ('flux', 'flux', 'test "$1" != queue || echo work enabled stopped', 'work enabled stopped')])
def test_queues_that_do_not_start_jobs(bin_directory: Path, system: str, program: str, answer: str,
                                       words: str) -> None:
    put(bin_directory, program, answer)
    schemas = {'local': {'job_manager_endpoint': f'{system}://localhost/'}}
    verdict, said = checked(schemas=schemas, default_queue='work')['queue']
    assert verdict == 'bad'
    assert said.split() == ['work', 'does', 'not', 'start', 'jobs:', *words.split()]


def test_a_qos_where_there_are_none() -> None:
    schemas = {'local': {'job_manager_endpoint': 'pbspro://localhost/'}}
    assert checked(schemas=schemas, default_queue='work:x')['qos'] == ('bad', 'PBS Pro has none: x')


def test_a_retired_platform_is_said_to_be_one() -> None:
    assert checked(retired=True)['retired'][0] == 'note'


def test_a_batch_system_that_is_not_there(bin_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = {'local': {'job_manager_endpoint': 'condor://localhost/'}}
    assert checked(schemas=schemas)['batch'] == (
        'bad', 'there is no condor_submit: HTCondor is not installed here, or not on PATH')


def test_definitions_are_questioned_before() -> None:
    assert checked(mem_per_node=512)['definition'] == ('note', 'mem_per_node is 512 MB: is that in another unit?')


def test_a_virtual_environment_that_is_still_to_be_made() -> None:
    assert checked(virtenv_mode='create', virtenv='/not/there')['virtenv'] == (
        'note', '/not/there will be made by the first pilot')


def test_text_of_the_definition_is_no_program(tmp_path: Path) -> None:
    trap = f'$(touch {tmp_path}/made) `touch {tmp_path}/made` "; touch {tmp_path}/made; "'
    checked(default_queue=trap, default_remote_workdir=f'/{trap}', virtenv=trap, virtenv_mode='use',
            python_interpreter=trap)
    assert not (tmp_path / 'made').exists()


def test_other_hosts_are_reached_by_ssh(tmp_path: Path) -> None:
    found = checked(schema='ssh', default_queue='work')
    assert found['reach'] == ('ok', 'me@far.away')
    assert found['queue'] == ('ok', 'work is there')
    assert found['agent'][0] == 'ok'
    asked, looked, files = (tmp_path / 'ssh').read_text().splitlines()
    assert asked == '-G -p 2222 me@far.away'
    assert looked == '-oBatchMode=yes -oConnectTimeout=15 -p 2222 me@far.away /bin/sh -s'
    assert files.endswith("-p 2222 me@far.away exec /bin/sh -c 'command -v tar'")
    assert found['files'] == ('ok', 'far.away')
    assert found['back'][0] == 'ok'


def test_a_host_that_cannot_be_reached(bin_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bin_directory, 'ssh', 'echo "me@far.away: Permission denied (publickey)." >&2; exit 255')
    assert checked(schema='ssh')['reach'] == (
        'bad', 'me@far.away cannot be reached: me@far.away: Permission denied (publickey).')
    monkeypatch.setattr(check_module, 'CHECK_TIMEOUT', 0.2)
    put(bin_directory, 'ssh', 'exec sleep 60')
    assert checked(schema='ssh')['reach'] == ('bad', 'me@far.away has not answered within 0.2 seconds')


def test_modules_that_complain_and_end_well(bin_directory: Path) -> None:
    """Such programs take the place of the shell function here."""
    put(bin_directory, 'module', 'test "$2" = good || echo "error: Unable to locate $2"')
    assert checked(pre_bootstrap_0=['module load good'])['command'] == ('ok', 'module load good')
    assert checked(pre_bootstrap_0=['module load bad'])['command'] == (
        'bad', 'module load bad failed: error: Unable to locate bad')


@pytest.mark.parametrize(('url', 'sentence'), [
    ('slurm://far.away/', 'far.away can only be reached through ssh'),
    ('slum://localhost/', "'slum' is not known"), ('slurm+tcp://far/', 'names no host that can be reached'),
    ('ssh:///', 'names no host')])
def test_urls_that_lead_nowhere(url: str, sentence: str) -> None:
    with pytest.raises(PlatformError, match=sentence):
        way(config(schemas={'local': {'job_manager_endpoint': url}}))


def test_the_exit_code_says_whether_something_is_bad(capsys: pytest.CaptureFixture[str]) -> None:
    assert platforms(['check', 'debug.test']) == 0
    assert 'ok    launch      FORK needs no program' in capsys.readouterr().out
    assert platforms(['check', 'nioz.laplace', '--schema', 'interactive']) == 0
    capsys.readouterr()
    assert platforms(['check', 'llnl.lassen', '--json']) == 1
    assert 'bad' in {finding['verdict'] for finding in json.loads(capsys.readouterr().out)}


def test_only_what_the_script_has_said_counts() -> None:
    assert list(findings('Welcome!\nRP-CHECK ok host n1\nRP-CHECK end\n')) == [Finding('ok', 'host', 'n1')]
    assert list(findings('')) == [
        Finding('bad', 'shell', 'the shell on the platform ended early, after the beginning')]


def test_the_script_is_for_any_shell() -> None:
    text = script(config(default_queue='work', pre_bootstrap_0=['module load x']), 'slurm', Client.here())
    assert '[[' not in text
    assert 'function ' not in text
