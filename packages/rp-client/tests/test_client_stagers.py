"""The client's stagers: files that tasks bring along, results that come back, and files of pilots."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from client_support import Events, Later, Manager, a_pilot, a_task

from rp_api import states
from rp_api.constants import COPY, NON_FATAL, TARBALL, TRANSFER
from rp_api.errors import DescriptionError, StagingError
from rp_client.core.task import TaskRecord
from rp_client.engine.tracker import Change
from rp_client.stager.input import TaskStagingInput
from rp_client.stager.output import TaskStagingOutput
from rp_client.stager.pilot import stage


class Site:
    """A pilot's directories, and one stager."""

    def __init__(self, base: Path) -> None:
        self.pilot = a_pilot(base=base)
        self.client = Path(self.pilot.directories.client)
        self.client.mkdir()
        Path(self.pilot.directories.pilot).mkdir(parents=True)
        self.events = Events()
        self.later = Later()
        self.out: list[Any] = []
        self.failed: list[Any] = []
        self.delayed: list[str] = []
        self.states: list[tuple[str, list[str]]] = []

    def input(self) -> TaskStagingInput:
        return TaskStagingInput('0000', self.events, self._advanced, self.later, self._staged)

    def output(self) -> TaskStagingOutput:
        return TaskStagingOutput('0000', self.events, self._advanced, self.later, self.out.append, self._keep)

    def task(self, uid: str = 'task.000000', **description: Any) -> TaskRecord:
        """A task that is bound to the pilot."""
        task = a_task(uid, Manager(), **description)
        task.pilot = self.pilot
        task.state = states.TMGR_STAGING_INPUT_PENDING
        return task

    def ended(self, uid: str = 'task.000000', state: str = states.DONE, **description: Any) -> Change:
        """A task that has left its agent."""
        task = self.task(uid, **description)
        self.sandbox(task).mkdir()
        return Change(task, state)

    def sandbox(self, task: TaskRecord) -> Path:
        assert task.sandbox is not None
        return Path(task.sandbox)

    def put(self, stager: TaskStagingInput, tasks: list[TaskRecord]) -> None:
        ready, delayed = stager.put(tasks)
        self.delayed += [task.uid for task in delayed]
        self._staged(ready, [])

    def put_out(self, finished: list[Change]) -> None:
        if ready := self.output().put(finished):
            self.out.append(ready)

    def cancel(self, stager: TaskStagingInput, uids: list[str]) -> None:
        self._staged([], [Change(task, states.CANCELED) for task in stager.cancel(uids)])

    def _staged(self, ready: list[TaskRecord], failed: list[Change]) -> None:
        self.failed += failed
        if ready:
            self.out.append(ready)

    @staticmethod
    def _keep(*_: Any) -> None:
        pytest.fail('no result is kept')

    def _advanced(self, tasks: Sequence[TaskRecord], state: str) -> None:
        for task in tasks:
            task.state = state
        self.states.append((state, [task.uid for task in tasks]))


@pytest.fixture(params=['here', 'elsewhere'])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Where the sandboxes can be seen, and where the same directories are only reached through ssh."""
    found = Site(tmp_path)
    if request.param == 'elsewhere':
        program = tmp_path / 'bin' / 'ssh'
        program.parent.mkdir()
        program.write_text('#!/bin/sh\nfor last; do :; done\necho >>"$0.log"\necho Welcome!\neval "$last"\n')
        program.chmod(0o755)
        monkeypatch.setenv('PATH', f'{program.parent}{os.pathsep}{os.environ["PATH"]}')
        found.pilot.directories = replace(found.pilot.directories, here=False, endpoint='sftp://host/')
    return found


def stage_in(site: Site, *tasks: TaskRecord) -> None:
    site.put(site.input(), list(tasks))
    site.later.work()


def stage_out(site: Site, *finished: Change) -> list[Change]:
    """What came out, all bulks together."""
    site.put_out(list(finished))
    site.later.work()
    return [each for bulk in site.out for each in bulk]


# input

def test_tasks_without_files_pass_at_once_and_together(site: Site) -> None:
    tasks = [site.task('task.1'), site.task('task.2', input_staging={'source': 'a', 'action': COPY})]
    site.put(site.input(), tasks)
    uids = ['task.1', 'task.2']
    assert site.out == [tasks]
    assert site.states == [(states.TMGR_STAGING_INPUT, uids), (states.AGENT_STAGING_INPUT_PENDING, uids)]
    assert not site.later.waiting
    assert not site.sandbox(tasks[1]).exists()


def test_files_are_transferred(site: Site) -> None:
    (site.client / 'a').write_text('data')
    slow, fast = site.task('slow', input_staging=['a > b', 'client:///a > pilot:///c']), site.task('fast')
    site.put(site.input(), [slow, fast])
    assert site.out == [[fast]]
    site.later.work()
    assert site.out == [[fast], [slow]]
    assert (site.sandbox(slow) / 'b').read_text() == Path(site.pilot.directories.pilot, 'c').read_text() == 'data'
    assert site.events.about('slow') == ['create_sandbox_start', 'create_sandbox_stop', *(
        ['staging_in_start', 'staging_in_stop'] * 2)]
    assert slow.state == states.AGENT_STAGING_INPUT_PENDING


@pytest.mark.parametrize('which', ['session', 'pilot'])
def test_sandboxes_that_others_could_change(site: Site, which: str) -> None:
    """Files go nowhere where others may have put links, or read them."""
    (site.client / 'a').write_text('data')
    path = Path(getattr(site.pilot.directories, which))
    path.chmod(0o777)
    task = site.task(input_staging=['a'])
    stage_in(site, task)
    ((failed, state, info),) = site.failed
    assert (failed, state) == (task, states.FAILED)
    assert f'{path} is not ours alone: others may write to it' in info['exception']
    assert not site.sandbox(task).exists()


def test_directives_of_the_agent_are_left_to_it(site: Site) -> None:
    (site.client / 'a').touch()
    task = site.task(input_staging=['a', {'source': 'none', 'action': COPY}])
    stage_in(site, task)
    assert site.out == [[task]]


def test_many_small_files_travel_in_one(site: Site) -> None:
    for name in ('a', 'b', 'c'):
        (site.client / name).write_text(name)
    task = site.task(input_staging=[{'source': 'a', 'action': TARBALL}, {'source': 'c'},
                                    {'source': 'b', 'target': 'sub/', 'action': TARBALL}])
    stage_in(site, task)
    assert site.out == [[task]]
    assert sorted(path.name for path in site.sandbox(task).iterdir()) == ['c', f'{task.uid}.tar']
    with tarfile.open(site.sandbox(task) / f'{task.uid}.tar') as archive:
        assert archive.getnames() == ['a', 'sub/b']
    assert site.events.about(task.uid)[2:] == ['staging_in_tar_start', 'staging_in_tar_stop', 'staging_in_start',
                                               'staging_in_stop']


@pytest.mark.parametrize('action', [TRANSFER, TARBALL])
def test_input_that_is_not_there(site: Site, action: str) -> None:
    task = site.task(input_staging={'source': 'none', 'action': action})
    stage_in(site, task)
    ((failed, state, info),) = site.failed
    assert (failed, state) == (task, states.FAILED)
    assert f'{site.client}/none: No such file or directory' in info['exception']
    assert info['exception_detail'] == 'input staging failed'
    assert site.out == []


@pytest.mark.parametrize('action', [TRANSFER, TARBALL])
def test_input_that_does_not_matter(site: Site, action: str) -> None:
    task = site.task(input_staging={'source': 'none', 'action': action, 'flags': NON_FATAL})
    stage_in(site, task)
    assert site.out == [[task]]


def test_archive_cannot_lead_out_of_the_sandbox(site: Site) -> None:
    (site.client / 'a').touch()
    task = site.task(input_staging={'source': 'a', 'target': 'pilot:///b', 'action': TARBALL})
    stage_in(site, task)
    assert 'Not a path inside' in site.failed[0][2]['exception']


def test_sandbox_that_cannot_be_made(site: Site) -> None:
    (site.client / 'a').touch()
    task = site.task(input_staging='a')
    site.sandbox(task).touch()
    stage_in(site, task)
    assert str(site.sandbox(task)) in site.failed[0][2]['exception']


ELSEWHERE = 'the sandbox of pilot.0000 is on another host, and the client cannot transfer files'


def test_input_for_another_host(site: Site) -> None:
    """Nothing is made here in its place."""
    site.pilot.directories = replace(site.pilot.directories, here=False, endpoint='')
    (site.client / 'a').touch()
    task = site.task(input_staging='a')
    stage_in(site, task)
    assert site.failed[0][2]['exception'].startswith(ELSEWHERE)
    assert not site.sandbox(task).exists()


def test_output_of_another_host(site: Site) -> None:
    site.pilot.directories = replace(site.pilot.directories, here=False, endpoint='')
    finished = site.ended(output_staging='a', cleanup=True)
    (ended,) = stage_out(site, finished)
    assert ended.state == states.FAILED
    assert ended.info is not None
    assert ended.info['exception'].startswith(ELSEWHERE)
    assert site.sandbox(finished.entity).exists()


def test_tasks_of_one_pilot_share_connections_but_no_faults(site: Site, tmp_path: Path) -> None:
    (site.client / 'a').write_text('a')
    tasks = [site.task(f'task.{number}', input_staging=name, output_staging=f'{name} > back.{number}', cleanup=True)
             for number, name in enumerate(('a', 'none', 'a'))]
    stage_in(site, *tasks)
    assert [task.uid for bulk in site.out for task in bulk] == ['task.0', 'task.2']
    assert [task.uid for task, *_ in site.failed] == ['task.1']
    assert [(site.sandbox(task) / 'a').exists() for task in tasks] == [True, False, True]
    site.out.clear()
    ended = stage_out(site, *(Change(task, states.DONE) for task in tasks))
    assert [end.state for end in ended] == [states.DONE, states.FAILED, states.DONE]
    assert f'failed on {site.sandbox(tasks[1])}/none: No such file' in (ended[1].info or {})['exception']
    assert sorted(path.name for path in site.client.iterdir()) == ['a', 'back.0', 'back.2']
    assert not any(site.sandbox(task).exists() for task in tasks)
    if not site.pilot.directories.here:   # in, out, and sandboxes away
        assert (tmp_path / 'bin' / 'ssh.log').read_text().count('\n') == 3


def test_cancelled_before_its_files_are_moved(site: Site) -> None:
    """Nothing is moved then."""
    (site.client / 'a').touch()
    task, other = site.task('task.1', input_staging='a'), site.task('task.2', input_staging='a')
    stager = site.input()
    site.put(stager, [task, other])
    site.cancel(stager, ['task.1', 'unknown'])
    site.later.work()
    assert site.failed == [(task, states.CANCELED, None)]
    assert not site.sandbox(task).exists()
    assert site.out == [[other]]


def test_cancelled_while_its_files_are_moved(site: Site) -> None:
    (site.client / 'a').touch()
    task = site.task(input_staging='a')
    stager = site.input()
    site.put(stager, [task])
    work, done, _ = site.later.waiting.pop()
    result = work()
    site.cancel(stager, [task.uid])
    assert [(failed.uid, state) for failed, state, _ in site.failed] == [(task.uid, states.CANCELED)]
    done(result)
    assert len(site.failed) == 1
    assert site.out == []
    assert site.events.about(task.uid)[-1] == 'drop'


def test_cancelled_too_late(site: Site) -> None:
    """It is with its agent already, and nothing is remembered about it."""
    (site.client / 'a').touch()
    task = site.task(input_staging='a')
    stager = site.input()
    site.put(stager, [task])
    site.later.work()
    site.cancel(stager, [task.uid])
    site.put(stager, [task])
    site.later.work()
    assert site.failed == []


@pytest.mark.parametrize('source', ['a', 'none'])
@pytest.mark.parametrize('cancelled', [True, False])
def test_ended_while_its_files_are_moved(site: Site, source: str, cancelled: bool) -> None:
    """Its pilot has ended, for example: whatever comes of the files, there is nothing more to say."""
    (site.client / 'a').touch()
    task = site.task(input_staging=source)
    stager = site.input()
    site.put(stager, [task])
    task.state = states.FAILED
    if cancelled:
        site.cancel(stager, [task.uid])
    site.later.work()
    assert (site.out, site.failed) == ([], [])
    assert site.events.about(task.uid).count('drop') == 1


# output

def test_results_without_files_pass_at_once_and_together(site: Site) -> None:
    finished = [site.ended('task.1'), site.ended('task.2', states.FAILED),
                site.ended('task.3', output_staging={'source': 'a', 'action': COPY}, cleanup=True)]
    site.put_out(finished)
    assert site.out == [finished]
    assert site.states == [(states.TMGR_STAGING_OUTPUT, ['task.1', 'task.2', 'task.3'])]
    assert not site.later.waiting


def test_results_come_back(site: Site) -> None:
    slow, fast = site.ended('slow', output_staging=['r > deep/result', 'r > pilot:///r']), site.ended('fast')
    (site.sandbox(slow.entity) / 'r').write_text('data')
    assert stage_out(site, slow, fast) == [fast, slow]
    assert (site.client / 'deep/result').read_text() == 'data'
    assert site.events.about('slow') == ['staging_out_start', 'staging_out_stop'] * 2


@pytest.mark.parametrize(('state', 'stage_on_error', 'staged'), [
    (states.FAILED, False, False), (states.CANCELED, False, False), (states.FAILED, True, True),
    (states.CANCELED, True, True)])
def test_results_of_tasks_that_did_not_succeed(site: Site, state: str, stage_on_error: bool, staged: bool) -> None:
    finished = site.ended(state=state, output_staging='r', stage_on_error=stage_on_error)
    (site.sandbox(finished.entity) / 'r').touch()
    assert stage_out(site, finished) == [finished]
    assert (site.client / 'r').exists() is staged


def test_result_that_is_not_there(site: Site) -> None:
    finished = site.ended(output_staging='r')
    (changed,) = stage_out(site, finished)
    assert (changed.entity, changed.state) == (finished.entity, states.FAILED)
    assert changed.info is not None
    assert f'{site.sandbox(finished.entity)}/r: No such file or directory' in changed.info['exception']
    assert changed.info['exception_detail'] == 'output staging failed'
    assert finished.info is None


@pytest.mark.parametrize('state', [states.FAILED, states.CANCELED])
def test_first_failure_counts(site: Site, state: str) -> None:
    finished = site.ended(state=state, output_staging='r', stage_on_error=True)
    assert stage_out(site, finished) == [finished]


@pytest.mark.parametrize('source', ['r', 'none'])
def test_cleanup_when_the_files_are_here(site: Site, source: str) -> None:
    finished = site.ended(output_staging=source, cleanup=True)
    (site.sandbox(finished.entity) / 'r').write_text('data')
    (changed,) = stage_out(site, finished)
    assert not site.sandbox(finished.entity).exists()
    assert (site.client / 'r').exists() is (source == 'r')
    assert changed.state == (states.DONE if source == 'r' else states.FAILED)


def test_cleanup_of_a_task_whose_files_are_not_wanted(site: Site) -> None:
    """The agent has left it to the client."""
    finished = site.ended(state=states.FAILED, output_staging='r', cleanup=True)
    assert stage_out(site, finished) == [finished]
    assert not site.sandbox(finished.entity).exists()
    assert site.events.about(finished.entity.uid) == []


def test_cleanup_spares_the_pilot(site: Site) -> None:
    task = site.task(output_staging='r', cleanup=True, sandbox='..')
    (site.sandbox(task) / 'r').touch()
    stage_out(site, Change(task, states.DONE, {}))
    assert Path(site.pilot.directories.pilot).exists()
    assert (site.client / 'r').exists()


# pilots

def test_files_of_a_pilot(site: Site) -> None:
    """Relative paths on the platform are the pilot's, and so are those of `task://`."""
    (site.client / 'a').write_text('data')
    pilot = site.pilot.directories.pilot
    assert stage(site.pilot, ['a', 'a > task:///b'], site.events, inwards=True) == [f'{pilot}/a', f'{pilot}/b']
    assert stage(site.pilot, 'b > back', site.events, inwards=False) == [f'{site.client}/back']
    assert (site.client / 'back').read_text() == 'data'
    assert site.events.about(site.pilot.uid) == ['staging_in_start', 'staging_in_stop'] * 2 + [
        'staging_out_start', 'staging_out_stop']


def test_nothing_for_a_pilot(site: Site) -> None:
    assert stage(site.pilot, [], site.events, inwards=True) == []


def test_file_of_a_pilot_that_is_not_there(site: Site) -> None:
    with pytest.raises(StagingError, match='none: No such file or directory') as caught:
        stage(site.pilot, 'none', site.events, inwards=True)
    assert caught.value.path == f'{site.client}/none'


def test_wrong_directive_of_a_pilot(site: Site) -> None:
    """None is carried out then."""
    (site.client / 'a').touch()
    with pytest.raises(DescriptionError, match='nowhere'):
        stage(site.pilot, ['a', 'a > nowhere:///a'], site.events, inwards=True)
    assert not Path(site.pilot.directories.pilot, 'a').exists()
    assert site.events.rows == []


# errors that nothing has foreseen

ODD = [RecursionError('too deep'), MemoryError(), UnicodeEncodeError('utf-8', '\ud800', 0, 1, 'odd'), KeyError('odd')]


@pytest.mark.parametrize('error', ODD, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize('where', ['rp_api.staging.run.attempt', 'rp_client.stager.base.Sandboxes'])
def test_odd_error_fails_its_own_task(site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception,
                                      where: str) -> None:
    """Where one task is concerned, others of the same bulk are not; where all are, all fail, and nothing is raised."""
    from rp_api.staging.run import attempt

    def raising(*arguments: Any, **named: Any) -> Any:
        if where.endswith('Sandboxes') or str(arguments[1]).endswith('odd'):
            raise error
        return attempt(*arguments, **named)

    monkeypatch.setattr(where, raising)
    for name in ('odd', 'fine'):
        (site.client / name).touch()
    odd, fine = (site.task(f'task.{name}', input_staging=name) for name in ('odd', 'fine'))
    stage_in(site, odd, fine)
    failed = {task.uid: info['exception'] for task, state, info in site.failed if state == states.FAILED}
    if where.endswith('Sandboxes'):
        assert failed.keys() == {'task.odd', 'task.fine'}
    else:
        assert failed.keys() == {'task.odd'}
        assert site.out == [[fine]]
    assert type(error).__name__ in failed['task.odd']


@pytest.mark.parametrize('error', ODD, ids=lambda error: type(error).__name__)
def test_odd_error_fails_the_output_of_its_own_task(site: Site, monkeypatch: pytest.MonkeyPatch,
                                                    error: Exception) -> None:
    from rp_api.staging.run import attempt

    def raising(*arguments: Any, **named: Any) -> Any:
        if str(arguments[1]).endswith('odd'):
            raise error
        return attempt(*arguments, **named)

    monkeypatch.setattr('rp_api.staging.run.attempt', raising)
    ended = [site.ended(f'task.{name}', output_staging=name, cleanup=True) for name in ('odd', 'fine')]
    for each, name in zip(ended, ('odd', 'fine'), strict=True):
        (site.sandbox(each.entity) / name).touch()
    found = {finished.entity.uid: finished for finished in stage_out(site, *ended)}
    assert {uid: finished.state for uid, finished in found.items()} == {
        'task.odd': states.FAILED, 'task.fine': states.DONE}
    assert type(error).__name__ in (found['task.odd'].info or {})['exception']
    assert not any(site.sandbox(each.entity).exists() for each in ended)
