"""Descriptions by keywords, with paths, of other tasks and pilots, and with mistakes: what becomes of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, pilot_description

import radical.pilot as rp
from rp_api.errors import AttributeUnknown


def test_keywords(shared: Run) -> None:
    task = shared.tmgr.submit_tasks(rp.TaskDescription(executable='echo', arguments=['a', 'b'], name='words'))
    assert task.wait(timeout=30) == rp.DONE, task.exception_detail
    assert (task.stdout, task.name) == ('a b\n', 'words')


def test_the_description_of_a_task_makes_another_one(shared: Run) -> None:
    first = shared.one(executable='false', metadata={'a': 1})
    assert first.state == rp.FAILED
    assert first.description.uid == first.uid
    second = shared.tmgr.submit_tasks(first.description)
    third, fourth = shared.tmgr.submit_tasks([second.description, first.description | {'executable': 'true'}])
    assert len({task.uid for task in (first, second, third, fourth)}) == 4
    for task in (second, third, fourth):
        assert task.wait(timeout=30) in rp.FINAL
        assert task.description.uid == task.uid
        assert task.metadata == {'a': 1}
    assert [task.state for task in (second, third, fourth)] == [rp.FAILED, rp.FAILED, rp.DONE]


def test_a_uid_that_was_chosen_is_used_once(shared: Run) -> None:
    task = shared.one(executable='true', uid='mine')
    with pytest.raises(ValueError, match=r"task uid 'mine' is in use already: .* without a uid in its"):
        shared.tmgr.submit_tasks(task.description)
    description = task.description
    description.uid = ''
    assert shared.tmgr.submit_tasks(description).wait(timeout=30) == rp.DONE


def test_descriptions_of_the_tasks_of_sweeps_make_others(shared: Run) -> None:
    sweep = shared.tmgr.submit_sweep(rp.TaskDescription(executable='echo', arguments=['{n}']), {'n': [1, 2]})
    shared.tmgr.wait_tasks([task.uid for task in sweep], timeout=30)
    task = shared.tmgr.submit_tasks(sweep[1].description)
    more = shared.tmgr.submit_sweep(task.description | {'arguments': ['{n}']}, {'n': [3]})
    assert (task.wait(timeout=30), task.stdout) == (rp.DONE, '2\n')
    assert (more[0].wait(timeout=30), more[0].stdout) == (rp.DONE, '3\n')
    assert task.uid.startswith('task.')


def test_descriptions_of_an_attached_session_make_new_tasks(base: Path) -> None:
    with rp.Session(uid='first') as session:
        tmgr = rp.TaskManager(session)
        assert tmgr.submit_tasks(rp.TaskDescription(executable='true')).uid == 'task.000000'
        session.close(terminate=False)
    with rp.Session(uid='first') as session:
        tmgr, = session.get_task_managers()
        task, = tmgr.get_tasks()
        assert tmgr.submit_tasks(task.description).uid == 'task.000001'


def test_descriptions_of_masters_and_workers_make_others(base: Path, session: rp.Session) -> None:
    tmgr = rp.TaskManager(session)
    master, = tmgr.submit_raptors(rp.TaskDescription(mode=rp.RAPTOR_MASTER))
    worker, = tmgr.submit_workers(rp.TaskDescription(mode=rp.RAPTOR_WORKER, raptor_id=master.uid))
    assert (master.uid, worker.uid) == ('raptor.0000', 'raptor.0000.0000')
    other, = tmgr.submit_raptors(master.description)
    more, = tmgr.submit_workers(worker.description)
    assert (other.uid, more.uid) == ('raptor.0001', 'raptor.0000.0001')


def test_the_description_of_a_pilot_makes_another_one(base: Path, session: rp.Session) -> None:
    pmgr = rp.PilotManager(session)
    first = pmgr.submit_pilots(pilot_description(base, cores=1))
    second = pmgr.submit_pilots(first.description)
    assert (first.uid, second.uid) == ('pilot.0000', 'pilot.0001')
    assert second.wait(rp.PMGR_ACTIVE, timeout=30) == rp.PMGR_ACTIVE
    assert second.description == {**first.description, 'uid': second.uid}
    chosen = pmgr.submit_pilots(pilot_description(base, cores=1, uid='mine'))
    with pytest.raises(ValueError, match="pilot uid 'mine' is in use already"):
        pmgr.submit_pilots(chosen.description)


def test_paths(base: Path) -> None:
    program, data = base / 'program.sh', base / 'data'
    program.write_text('#!/bin/sh\ncat copy "$1"\necho "$OTHER" >&2\n')
    program.chmod(0o755)
    data.write_text('data\n')
    with rp.Session(cfg={'base': base / 'sessions', 'client_sandbox': base}) as session:
        pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
        pilot = pmgr.submit_pilots(rp.PilotDescription(
            resource='local.exact', cores=2, sandbox=base,
            input_staging=[{'source': Path('data'), 'target': Path('ours')}]))
        tmgr.add_pilots(pilot)
        task, staged = tmgr.submit_tasks([
            rp.TaskDescription(executable=program, arguments=[data], sandbox=base / 'own', environment={'OTHER': data},
                               stdout=base / 'out', input_staging=[{'source': data, 'target': Path('copy')}],
                               output_staging=[{'source': Path('copy'), 'target': base / 'back'}]),
            rp.TaskDescription(executable=Path('program.sh'), arguments=['copy'], sandbox='both',
                               input_staging=[program, {'source': 'data', 'target': 'copy'}])])
        assert tmgr.wait_tasks(timeout=30) == [rp.DONE, rp.DONE], (task.exception_detail, staged.exception_detail)
        assert Path(str(task.sandbox)) == base / 'own'
        assert (task.stdout, task.stderr, staged.stdout) == ('data\ndata\n', f'{data}\n', 'data\ndata\n')
        assert (base / 'back').read_text() == 'data\n'
        assert (Path(pilot.pilot_sandbox) / 'ours').read_text() == 'data\n'
        assert Path(session.path).parent == base / 'sessions'


def test_the_error_names_the_line_that_is_wrong(shared: Run) -> None:
    description: Any = rp.TaskDescription(executable='true')
    description.env = {}
    line = sys._getframe().f_lineno - 1
    with pytest.raises(AttributeUnknown, match=r'TaskDescription has no attribute "env": use "environment"') as caught:
        shared.tmgr.submit_tasks([rp.TaskDescription(executable='true'), description])
    assert str(caught.value).endswith(f'(set in {__file__}, line {line})')


def test_the_line_of_a_dict_is_that_of_its_submission(shared: Run) -> None:
    description: Any = {'executable': 'true', 'env': {}}
    with pytest.raises(AttributeUnknown) as caught:
        shared.tmgr.submit_tasks(description)
    assert str(caught.value).endswith(f'(set in {__file__}, line {sys._getframe().f_lineno - 1})')
