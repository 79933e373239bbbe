"""Identities of tasks: what their results depend on counts, or they have none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from client_support import a_pilot, a_task

from rp_api import constants as c
from rp_client.cache.digest import DigestError
from rp_client.cache.identity import call_identity, identity
from rp_client.cache.notes import Identity
from rp_client.cache.surroundings import Surroundings, unlike
from rp_client.core.pilot import PilotRecord
from rp_client.core.task import TaskRecord


def of(base: Path, *, pilots: Iterable[PilotRecord] = (), raptors: Iterable[TaskRecord] = (),
       **description: Any) -> Identity:
    task = a_task(cache=True, **description)
    return identity(task.sparse(), str(base), Surroundings(pilots, raptors))


def value(base: Path, **description: Any) -> bytes:
    return of(base, **description).value


def script(path: Path, text: str = 'true') -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)
    return path


def test_the_executable_is_the_one_that_the_task_finds(tmp_path: Path) -> None:
    one, other = script(tmp_path / 'one' / 'program'), script(tmp_path / 'other' / 'program', 'false')
    first = value(tmp_path, executable='program', environment={'PATH': f'{one.parent}:/bin'})
    found = of(tmp_path, executable='program', environment={'PATH': f'{one.parent}:$PATH'})
    assert list(found.parts) == [f'file {one}']
    script(one, 'false')
    assert value(tmp_path, executable='program', environment={'PATH': f'{one.parent}:/bin'}) != first
    assert value(tmp_path, executable=str(one)) != value(tmp_path, executable=str(other))


@pytest.mark.parametrize('executable', ['no-such-program', '/no/such/program', '/bin/echo a', 'true && true', './mine'])
def test_an_executable_that_cannot_be_judged_is_refused(tmp_path: Path, executable: str) -> None:
    with pytest.raises(DigestError, match='the executable'):
        of(tmp_path, executable=executable)


def test_executables_among_the_inputs_count_as_these(tmp_path: Path) -> None:
    program = script(tmp_path / 'build' / 'mine')
    wanted = [{'executable': './mine', 'input_staging': ['build/mine']},
              {'executable': 'build/mine', 'input_staging': ['build']},
              {'executable': './other', 'input_staging': ['build/mine > other']}]
    before = [value(tmp_path, **each) for each in wanted]
    script(program, 'false')
    assert not {*before} & {value(tmp_path, **each) for each in wanted}


@pytest.mark.parametrize('argument', ['{}', '--input={}'])
@pytest.mark.parametrize('directory', [False, True])
def test_arguments_that_are_paths_count_by_content(tmp_path: Path, argument: str, directory: bool) -> None:
    path = tmp_path / 'data' / 'file'
    path.parent.mkdir()
    path.write_text('1')
    arguments = [argument.format(path.parent if directory else path)]
    before = value(tmp_path, arguments=arguments)
    path.write_text('2')
    assert value(tmp_path, arguments=arguments) != before


def test_what_links_in_inputs_lead_to_counts(tmp_path: Path) -> None:
    (tmp_path / 'inputs').mkdir()
    (tmp_path / 'target').write_text('1')
    (tmp_path / 'inputs' / 'link').symlink_to(tmp_path / 'target')
    before = value(tmp_path, input_staging=['inputs'])
    (tmp_path / 'target').write_text('2')
    assert value(tmp_path, input_staging=['inputs']) != before


def test_a_fifo_among_the_inputs_is_no_content(tmp_path: Path) -> None:
    (tmp_path / 'inputs').mkdir()
    os.mkfifo(tmp_path / 'inputs' / 'fifo')
    with pytest.raises(OSError, match='Neither a file nor a directory'):
        of(tmp_path, input_staging=['inputs'])


@pytest.mark.parametrize('attributes', [
    {'sandbox': 'mine'}, {'sandbox': '/tmp/mine'}, {'stdout': '../out'}, {'stderr': 'a/../../err'}])
def test_what_is_not_in_the_sandbox_is_refused(tmp_path: Path, attributes: dict[str, Any]) -> None:
    with pytest.raises(DigestError, match=r'its (sandbox|stdout|stderr)'):
        of(tmp_path, **attributes)


def test_images_count_by_their_content(tmp_path: Path) -> None:
    image = tmp_path / 'image' / 'bin'
    image.mkdir(parents=True)
    (image / 'program').write_text('1')
    for name in (str(image.parent), str(image / 'program')):
        (image / 'program').write_text('1')
        before = value(tmp_path, container={'image': name})
        (image / 'program').write_text('2')
        assert value(tmp_path, container={'image': name}) != before
    one, other = (value(tmp_path, container={'image': f'docker://a/b@sha256:{"0" * 63}{number}'}) for number in '12')
    assert one != other
    with pytest.raises(DigestError, match=r"the image 'docker://a/b:1', whose content may change: name it by its dig"):
        of(tmp_path, container={'image': 'docker://a/b:1'})


# named environments

def prepared(base: Path, uid: str = 'pilot.0000', **spec: Any) -> PilotRecord:
    return a_pilot(uid, base, prepare_env={'mine': spec})


def environment(pilot: PilotRecord, packages: Path | None, **spec: Any) -> None:
    """Write what the agent of a pilot writes when an environment exists."""
    record = Path(pilot.directories.pilot, 'env', 'rp_named_env.mine.json')
    record.parent.mkdir(parents=True, exist_ok=True)
    known = {'type': 'venv', 'version': '', 'path': '', 'setup': [], 'pre_exec': [], 'keep': False, 'pack': False,
             'container': {}}
    record.write_text(json.dumps({'name': 'mine', 'spec': known | spec, 'identity': 'x',
                                  'path': str(packages) if packages else ''}))


def package(directory: Path, version: str) -> None:
    info = directory / 'lib' / 'python3.11' / 'site-packages' / f'thing-{version}.dist-info'
    info.mkdir(parents=True)
    (info / 'METADATA').write_text('Name: thing\n')
    (info / 'RECORD').write_text(f'thing/__init__.py,sha256={version},1\n')


def test_environments_of_shells_count_by_what_they_run(tmp_path: Path) -> None:
    found = {value(tmp_path, named_env='mine', pilots=[prepared(tmp_path, type='shell', pre_exec=[f'export A={each}'])])
             for each in '12'}
    assert len(found) == 2


def test_environments_count_by_their_packages(tmp_path: Path) -> None:
    pilot = a_pilot(base=tmp_path)
    for number in '12':
        package(tmp_path / number, '1')
    environment(pilot, tmp_path / '1')
    before = of(tmp_path, named_env='mine', pilots=[pilot])
    assert before.changed == ''
    environment(pilot, tmp_path / '2')   # elsewhere, with the same packages
    assert value(tmp_path, named_env='mine', pilots=[pilot]) == before.value
    package(tmp_path / '2', '2')
    assert value(tmp_path, named_env='mine', pilots=[pilot]) != before.value
    assert before.changed == 'environment mine of pilot.0000'
    environment(pilot, tmp_path / '1', pre_exec=['export A=1'])
    assert value(tmp_path, named_env='mine', pilots=[pilot]) != before.value


def test_environments_that_cannot_be_judged_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DigestError, match='no pilot has yet'):
        of(tmp_path, named_env='mine')
    with pytest.raises(DigestError, match=r'which pilot.0000 does not have yet'):
        of(tmp_path, named_env='mine', pilots=[a_pilot(base=tmp_path)])
    with pytest.raises(DigestError, match=r'not known before it is built on pilot.0000'):
        of(tmp_path, named_env='mine', pilots=[prepared(tmp_path, setup=['numpy'])])
    pilots = [prepared(tmp_path, f'pilot.{each}', type='shell', pre_exec=[f'export A={each}']) for each in '12']
    with pytest.raises(DigestError, match='differs between the pilots'):
        of(tmp_path, named_env='mine', pilots=pilots)
    package(tmp_path / 'env', '1')
    origin = next((tmp_path / 'env').rglob('RECORD')).with_name('direct_url.json')
    origin.write_text('{"url": "file:///project", "dir_info": {"editable": true}}')
    environment(pilots[0], tmp_path / 'env')
    with pytest.raises(DigestError, match='an editable package'):
        of(tmp_path, named_env='mine', pilots=pilots[:1])


# masters and workers

def method(base: Path, *raptors: TaskRecord) -> bytes:
    return value(base, mode=c.TASK_METHOD, method='run', raptor_id='raptor.0000', executable='', raptors=raptors)


def master(**description: Any) -> TaskRecord:
    return a_task('raptor.0000', mode=c.RAPTOR_MASTER, executable='', **description)


def worker(**description: Any) -> TaskRecord:
    return a_task('raptor.0000.0000', mode=c.RAPTOR_WORKER, executable='', raptor_id='raptor.0000', **description)


def test_methods_count_by_the_class_at_their_master(tmp_path: Path) -> None:
    file = tmp_path / 'classes.py'
    file.write_text('import beside\nclass One: pass\n')
    (tmp_path / 'beside.py').write_text('A = 1\n')

    def found(name: str, **others: Any) -> bytes:
        return method(tmp_path, master(), worker(raptor_class=name, raptor_file=str(file), **others))

    assert found('One') == found('One')
    kinds = {found('One'), found('Two'), method(tmp_path, master()), found('One', environment={'A': '1'}),
             method(tmp_path, master(raptor_class='One', raptor_file=str(file)), worker())}
    assert len(kinds) == 5
    before = found('One')
    (tmp_path / 'beside.py').write_text('A = 2\n')
    changed = found('One')
    file.write_text('import beside\nclass One: a = 1\n')
    assert len({before, changed, found('One')}) == 3
    with pytest.raises(DigestError, match='the raptor_file'):
        method(tmp_path, master(raptor_class='One', raptor_file='nowhere.py'))
    with pytest.raises(DigestError, match=r'the master raptor.0000, which is not of this task manager'):
        method(tmp_path)


def test_code_counts_by_the_modules_that_it_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    found = set()
    for number in '12':
        (tmp_path / 'thing.py').write_text(f'A = {number}\n')
        found.add(value(tmp_path, mode=c.TASK_EXEC, code='import thing\nprint(thing.A)', raptor_id='raptor.0000',
                        executable='', raptors=[master()]))
    assert len(found) == 2


def test_a_pilot_elsewhere_is_not_like_the_application(tmp_path: Path) -> None:
    assert 'not known' in unlike(None, python=False)
    assert unlike(a_pilot(base=tmp_path), python=False) == ''


# what changes while a task or call runs

def test_identities_notice_what_is_written_meanwhile(tmp_path: Path) -> None:
    path = script(tmp_path / 'program')
    (tmp_path / 'input').write_text('1')
    for each in (path, tmp_path / 'input'):
        found = of(tmp_path, executable=str(path), input_staging=['input'])
        again = of(tmp_path, executable=str(path), input_staging=['input'])
        assert (again.state, found.changed) == (found.state, '')
        each.write_text(each.read_text())
        assert found.changed == f'file {each}'
        later = of(tmp_path, executable=str(path), input_staging=['input'])
        assert later.value == found.value
        assert later.state != found.state
        each.unlink()
        assert found.changed == f'file {each}'
        script(path)


def test_a_key_stands_for_all_that(tmp_path: Path) -> None:
    task = a_task(cache='key', executable='nothing', sandbox='mine', named_env='mine')
    found = identity(task.sparse(), str(tmp_path), Surroundings((), ()))
    assert (found.by_key, found.changed, dict(found.parts)) == (True, '', {})
    assert call_identity(len, (), {}, None, 'key').value != found.value
