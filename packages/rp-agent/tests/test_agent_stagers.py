"""The agent's stagers: what is staged in before a task runs, and what is made of its files afterwards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rp_agent.stager.component import TAIL, StagerInput, StagerOutput, tail
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.constants import COPY, LINK, MOVE, NON_FATAL, TARBALL, TRANSFER
from rp_api.loop.offload import Done, Failed, Work
from rp_api.staging import Sandboxes, expand
from rp_api.staging.tarball import pack
from rp_profiling.write.tracer import HEADER, Tracer

Stager = TypeVar('Stager', StagerInput, StagerOutput)


class Events(Tracer):
    """A trace that is kept: event, uid and message of each row."""

    def __init__(self) -> None:
        super().__init__(None, 'test')
        self.rows: list[tuple[str, str, str]] = []

    def record(self, event: str, uid: str = '', state: str = '', msg: str = '') -> None:
        self.rows.append((event, uid, msg))

    def record_many(self, uid: str, events: tuple[str, ...], msg: str = '') -> None:
        self.rows += [(event, uid, msg) for event in events]

    def about(self, uid: str) -> list[str]:
        """The events of a task, without the numbers of directives."""
        return [event for event, who, _ in self.rows if who == uid]


class Site:
    """The directories of a pilot, and one stager whose blocking work is done when the test says so."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.client = base / 'client'
        self.pilot = base / 'pilot'
        self.client.mkdir()
        self.pilot.mkdir()
        self.events = Events()
        self.tracer: Tracer = self.events
        self.out: list[list[str]] = []
        self.failed: list[AgentTask] = []
        self.states: list[tuple[str, list[str]]] = []
        self.waiting: list[tuple[Work, Done, Failed]] = []

    def input(self) -> StagerInput:
        return self._wired(StagerInput('input', self.tracer, self.sandboxes, self._offload, self.failed.extend))

    def output(self) -> StagerOutput:
        return self._wired(StagerOutput('output', self.tracer, self.sandboxes, self._offload))

    def task(self, uid: str = 'task.000000', **description: Any) -> AgentTask:
        """A task as it comes over the wire."""
        for name in ('input_staging', 'output_staging'):
            if name in description:
                description[name] = expand(description[name])
        sandbox = os.path.normpath(self.pilot / description.get('sandbox', uid))
        return AgentTask(uid, description, 'pilot.0000', sandbox)

    def ended(self, uid: str = 'task.000000', state: str = states.DONE, **description: Any) -> AgentTask:
        """A task that has run."""
        task = self.task(uid, **description)
        os.makedirs(task.sandbox, exist_ok=True)
        task.exit_code = 0 if state == states.DONE else 1
        task.target_state = state
        return task

    def sandboxes(self, task: AgentTask) -> Sandboxes:
        return Sandboxes(client=str(self.client), resource=str(self.base), session=str(self.base),
                         pilot=str(self.pilot), task=task.sandbox)

    def work(self) -> None:
        """Do all that was given to the helper threads."""
        while self.waiting:
            work, done, failed = self.waiting.pop(0)
            try:
                result = work()
            except BaseException as error:
                failed(error)
            else:
                done(result)

    def _offload(self, work: Work, done: Done, failed: Failed) -> None:
        self.waiting.append((work, done, failed))

    def _wired(self, component: Stager) -> Stager:
        component.output = lambda tasks: self.out.append([task.uid for task in tasks])
        component.advanced = self._advanced
        return component

    def _advanced(self, tasks: Sequence[AgentTask], state: str) -> None:
        assert {task.state for task in tasks} == {state}
        self.states.append((state, [task.uid for task in tasks]))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def stage_in(site: Site, *tasks: AgentTask) -> None:
    site.input().put(list(tasks))
    site.work()


def stage_out(site: Site, *tasks: AgentTask) -> None:
    site.output().put(list(tasks))
    site.work()


# input

def test_tasks_without_staging_pass_at_once_and_together(site: Site) -> None:
    tasks = [site.task(f'task.{number}') for number in range(3)]
    site.input().put(tasks)
    uids = ['task.0', 'task.1', 'task.2']
    assert site.states == [(states.AGENT_STAGING_INPUT, uids), (states.AGENT_SCHEDULING_PENDING, uids)]
    assert site.out == [uids]
    assert not site.waiting
    assert not any(site.pilot.iterdir())


def test_staging_holds_up_nobody_else(site: Site) -> None:
    (site.pilot / 'shared').write_text('data')
    site.input().put([site.task('slow', input_staging={'source': 'pilot:///shared', 'action': COPY}),
                      site.task('fast')])
    assert site.out == [['fast']]
    site.work()
    assert site.out == [['fast'], ['slow']]
    assert site.states[1:] == [(states.AGENT_SCHEDULING_PENDING, ['fast']),
                               (states.AGENT_SCHEDULING_PENDING, ['slow'])]
    assert (site.pilot / 'slow/shared').read_text() == 'data'


def test_nothing_to_put(site: Site) -> None:
    site.input().put([])
    site.output().put([])
    assert (site.states, site.out) == ([], [])


@pytest.mark.parametrize(('action', 'remains', 'is_link'), [
    (COPY, True, False), (LINK, True, True), (MOVE, False, False)])
def test_actions_of_the_agent(site: Site, action: str, remains: bool, is_link: bool) -> None:
    source = site.pilot / 'source'
    source.write_text('data')
    task = site.task(input_staging={'source': 'pilot:///source', 'target': 'deep/target', 'action': action})
    stage_in(site, task)
    target = Path(task.sandbox, 'deep/target')
    assert target.read_text() == 'data'
    assert (source.exists(), target.is_symlink()) == (remains, is_link)
    assert site.events.about(task.uid) == ['staging_in_start', 'staging_in_stop']


def test_relative_paths_are_the_task_s_own(site: Site) -> None:
    (site.pilot / 'source').write_text('data')
    task = site.task(input_staging=[{'source': 'pilot:///source', 'target': 'a', 'action': LINK},
                                    {'source': 'a', 'target': 'b', 'action': COPY}])
    stage_in(site, task)
    assert Path(task.sandbox, 'b').read_text() == 'data'
    assert site.out == [[task.uid]]


def test_directives_of_the_client_are_skipped(site: Site) -> None:
    task = site.task(input_staging=[{'source': 'no such file', 'action': TRANSFER, 'uid': 'sd.1'}])
    stage_in(site, task)
    assert site.events.rows[-1] == ('staging_in_skip', task.uid, 'sd.1')
    assert site.out == [[task.uid]]


def test_archive_is_unpacked_and_removed(site: Site) -> None:
    task = site.task(input_staging=[{'source': 'a', 'target': 'one', 'action': TARBALL},
                                    {'source': 'b', 'target': 'sub/two', 'action': TARBALL},
                                    {'source': 'sub/two', 'target': 'three', 'action': COPY}])
    for name in 'ab':
        (site.client / name).write_text(name)
    Path(task.sandbox).mkdir()
    first, second, _ = task.description['input_staging']
    pack(f'{task.sandbox}/{task.uid}.tar', [(first, str(site.client / 'a'), 'one'),
                                            (second, str(site.client / 'b'), 'sub/two')])
    stage_in(site, task)
    assert sorted(os.listdir(task.sandbox)) == ['one', 'sub', 'three']
    assert Path(task.sandbox, 'three').read_text() == 'b'
    assert site.events.about(task.uid) == ['staging_in_skip'] * 2 + ['staging_in_start', 'staging_in_stop']


def refused(site: Site, task: AgentTask) -> AgentTask:
    """The task, after its input staging has failed."""
    stage_in(site, task)
    assert site.failed == [task]
    assert site.out == []
    assert task.state == states.AGENT_STAGING_INPUT
    return task


def test_failure_names_directive_and_path(site: Site) -> None:
    task = refused(site, site.task(input_staging={'source': 'pilot:///none', 'target': 'x', 'action': COPY}))
    assert task.target_state == states.FAILED
    assert task.exception == (f'staging directive [Copy pilot:///none > x] failed on {site.pilot}/none: '
                              'No such file or directory')
    assert task.exception_detail == 'input staging failed'
    assert site.events.about(task.uid) == ['staging_in_start', 'staging_in_fail']


def test_archive_that_is_not_there(site: Site) -> None:
    task = refused(site, site.task(input_staging={'source': 'a', 'action': TARBALL}))
    assert task.exception is not None
    assert f'{task.uid}.tar' in task.exception


def test_archive_that_is_broken(site: Site) -> None:
    task = site.task(input_staging={'source': 'a', 'action': TARBALL})
    Path(task.sandbox).mkdir()
    Path(task.sandbox, f'{task.uid}.tar').write_bytes(b'no archive' * 100)
    assert 'Not a valid tar file' in str(refused(site, task).exception)


def test_sandbox_that_cannot_be_made(site: Site) -> None:
    (site.pilot / 'task.000000').touch()
    task = refused(site, site.task(input_staging={'source': 'pilot:///x', 'action': COPY}))
    assert task.sandbox in str(task.exception)


def test_location_without_meaning(site: Site) -> None:
    task = refused(site, site.task(input_staging={'source': 'nowhere:///x', 'action': COPY}))
    assert "unknown scheme 'nowhere'" in str(task.exception)


def test_failure_that_does_not_matter(site: Site) -> None:
    task = site.task(input_staging={'source': 'pilot:///none', 'action': COPY, 'flags': NON_FATAL})
    stage_in(site, task)
    assert site.out == [[task.uid]]
    assert site.events.about(task.uid) == ['staging_in_start', 'staging_in_fail']


def test_cancelled_before_staging(site: Site) -> None:
    """Nothing is done for it any more."""
    task = site.task(input_staging={'source': 'pilot:///none', 'action': COPY})
    site.input().put([task])
    task.cancelled = True
    site.work()
    assert site.failed == [task]
    assert (task.target_state, task.exception) == (states.CANCELED, 'cancelled while its input was staged')
    assert not Path(task.sandbox).exists()


def test_cancelled_while_staging(site: Site) -> None:
    (site.pilot / 'source').touch()
    task = site.task(input_staging={'source': 'pilot:///source', 'action': COPY})
    site.input().put([task])
    work, done, _ = site.waiting.pop()
    result = work()
    task.cancelled = True
    done(result)
    assert site.failed == [task]
    assert task.target_state == states.CANCELED
    assert site.out == []


def test_ended_while_staging(site: Site) -> None:
    """Nobody waits for the files then, and what comes of them changes nothing."""
    one, other = (site.task(uid, input_staging={'source': 'pilot:///none', 'action': COPY}) for uid in ('one', 'other'))
    stager = site.input()
    stager.put([one, other])
    stager.cancel(['one', 'unknown'])
    assert (one.target_state, one.exception) == (states.CANCELED, 'cancelled while its input was staged')
    assert site.failed == [one]
    stager.cancel_all('the pilot ended')
    assert (other.target_state, other.exception) == (states.CANCELED, 'the pilot ended')
    stager.cancel_all('again')
    site.work()
    assert site.failed == [one, other]
    assert {task.target_state for task in site.failed} == {states.CANCELED}
    assert site.out == []


def test_failed_and_cancelled(site: Site) -> None:
    """The failure is what happened first."""
    task = site.task(input_staging={'source': 'pilot:///none', 'action': COPY})
    site.input().put([task])
    work, done, _ = site.waiting.pop()
    result = work()
    task.cancelled = True
    done(result)
    assert task.target_state == states.FAILED


# output

def test_ends_of_the_outputs(site: Site) -> None:
    task = site.ended()
    Path(task.sandbox, 'task.000000.out').write_text('some\noutput\n')
    Path(task.sandbox, 'task.000000.err').write_text('x' * (TAIL + 1))
    stage_out(site, task)
    assert task.stdout == 'some\noutput\n'
    assert task.stderr == '[... CONTENT SHORTENED ...]\n' + 'x' * TAIL
    assert site.events.about(task.uid) == ['staging_stdout_start', 'staging_stdout_stop', 'staging_stderr_start',
                                           'staging_stderr_stop']
    assert site.states == [(states.AGENT_STAGING_OUTPUT, [task.uid]), (states.TMGR_STAGING_OUTPUT_PENDING, [task.uid])]
    assert site.out == [[task.uid]]


def test_outputs_with_other_names(site: Site, tmp_path: Path) -> None:
    task = site.ended(stdout='sub/my out', stderr=str(tmp_path / 'err'))
    Path(task.sandbox, 'sub').mkdir()
    Path(task.sandbox, 'sub/my out').write_text('out')
    (tmp_path / 'err').write_text('err')
    stage_out(site, task)
    assert (task.stdout, task.stderr) == ('out', 'err')


def test_task_that_never_ran_has_no_output(site: Site) -> None:
    task = site.ended(state=states.FAILED)
    task.exit_code = None
    Path(task.sandbox, 'task.000000.out').write_text('of an earlier one')
    stage_out(site, task)
    assert (task.stdout, task.stderr) == ('', '')
    assert site.events.about(task.uid) == []
    assert site.out == [[task.uid]]


def test_output_of_a_task_without_a_sandbox(site: Site) -> None:
    task = site.ended(state=states.FAILED)
    os.rmdir(task.sandbox)
    stage_out(site, task)
    assert (task.stdout, task.stderr, task.output_files) == ('', '', [])
    assert site.out == [[task.uid]]


@pytest.mark.timeout(20)
def test_outputs_that_are_no_files(site: Site) -> None:
    """Devices, pipes and directories have no end that could be read."""
    task = site.ended(stdout='pipe', stderr='/dev/zero')
    os.mkfifo(Path(task.sandbox, 'pipe'))
    stage_out(site, task)
    assert (task.stdout, task.stderr) == ('', '')
    assert tail(task.sandbox) == ''


@pytest.mark.parametrize('text', ['', 'a', 'x' * TAIL, 'ü' * TAIL, '\U0001f600' * TAIL])
def test_short_texts_come_whole(tmp_path: Path, text: str) -> None:
    (tmp_path / 'text').write_text(text, encoding='utf-8')
    assert tail(str(tmp_path / 'text')) == text


@pytest.mark.parametrize('character', ['x', 'ü', '\u2603', '\U0001f600'])
@pytest.mark.parametrize('size', [TAIL + 1, 5 * TAIL, 100_000])
def test_long_texts_are_shortened(tmp_path: Path, character: str, size: int) -> None:
    (tmp_path / 'text').write_text(character * size, encoding='utf-8')
    first, last = tail(str(tmp_path / 'text')).split('\n')
    assert 'SHORTENED' in first
    assert last == character * TAIL


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / 'bytes').write_bytes(b'a\xff\xfeb\0')
    assert tail(str(tmp_path / 'bytes')) == 'a\ufffd\ufffdb\0'


def test_output_files(site: Site) -> None:
    """What the task made: neither its standard files, whatever their names, nor its scripts."""
    task = site.ended(stdout='my out', stderr='./sub/../my err')
    for name in ('z', 'my out', 'my err', 'task.000000.exec.sh', 'task.000000.prof', 'task.0000001', 'task.000000'):
        Path(task.sandbox, name).touch()
    Path(task.sandbox, 'a').mkdir()
    stage_out(site, task)
    assert task.output_files == ['a', 'task.000000', 'task.0000001', 'z']


def test_what_was_staged_in_is_no_output(site: Site) -> None:
    (site.pilot / 'in').touch()
    task = site.task(input_staging={'source': 'pilot:///in', 'action': COPY})
    stage_in(site, task)
    Path(task.sandbox, 'new').touch()
    task.exit_code, task.target_state = 0, states.DONE
    stage_out(site, task)
    assert task.output_files == ['new']


def test_what_was_in_a_shared_sandbox_is_no_output(site: Site) -> None:
    (site.pilot / 'shared').mkdir()
    (site.pilot / 'shared/before').touch()
    task, other = site.task('task.1', sandbox='shared'), site.task('task.2', sandbox='new')
    stage_in(site, task, other)
    assert site.out == [['task.1', 'task.2']]
    (site.pilot / 'shared/new').touch()
    stage_out(site, task, other)
    assert (task.output_files, other.output_files) == (['new'], [])


@pytest.mark.parametrize(('state', 'stage_on_error', 'staged'), [
    (states.DONE, False, True), (states.FAILED, False, False), (states.CANCELED, False, False),
    (states.FAILED, True, True), (states.CANCELED, True, True)])
def test_when_output_is_staged(site: Site, state: str, stage_on_error: bool, staged: bool) -> None:
    task = site.ended(state=state, stage_on_error=stage_on_error, output_staging=[
        {'source': 'result', 'target': 'pilot:///kept', 'action': COPY}, {'source': 'result', 'action': TRANSFER}])
    Path(task.sandbox, 'result').write_text('data')
    stage_out(site, task)
    assert (site.pilot / 'kept').exists() is staged
    assert task.target_state == state
    assert ('staging_out_stop' in site.events.about(task.uid)) is staged
    assert ('staging_out_skip' in site.events.about(task.uid)) is staged
    assert site.out == [[task.uid]]


def test_output_staging_holds_up_nobody_else(site: Site) -> None:
    slow = site.ended('slow', output_staging={'source': 'a', 'target': 'b', 'action': COPY})
    Path(slow.sandbox, 'a').touch()
    site.output().put([slow, site.ended('fast')])
    assert site.out == [['fast']]
    site.work()
    assert site.out == [['fast'], ['slow']]


def test_output_staging_fails(site: Site) -> None:
    task = site.ended(output_staging={'source': 'none', 'target': 'pilot:///x', 'action': COPY})
    stage_out(site, task)
    assert task.target_state == states.FAILED
    assert f'[Copy none > pilot:///x] failed on {task.sandbox}/none' in str(task.exception)
    assert task.exception_detail == 'output staging failed'
    assert site.out == [[task.uid]]
    assert task.state == states.TMGR_STAGING_OUTPUT_PENDING


@pytest.mark.parametrize('state', [states.FAILED, states.CANCELED])
def test_first_failure_counts(site: Site, state: str) -> None:
    task = site.ended(state=state, stage_on_error=True,
                      output_staging={'source': 'none', 'target': 'pilot:///x', 'action': COPY})
    task.exception = 'first'
    stage_out(site, task)
    assert (task.target_state, task.exception) == (state, 'first')


@pytest.mark.parametrize('state', [states.DONE, states.FAILED])
def test_cleanup(site: Site, state: str) -> None:
    """Outputs are read and files are staged before the sandbox goes."""
    task = site.ended(state=state, cleanup=True, stage_on_error=True,
                      output_staging={'source': 'result', 'target': 'pilot:///kept', 'action': MOVE})
    Path(task.sandbox, 'result').write_text('data')
    Path(task.sandbox, 'task.000000.out').write_text('said')
    stage_out(site, task)
    assert not Path(task.sandbox).exists()
    assert (site.pilot / 'kept').read_text() == 'data'
    assert (task.stdout, task.output_files) == ('said', ['result'])


@pytest.mark.parametrize('action', [COPY, TRANSFER])
def test_the_profile_of_a_removed_sandbox_is_kept(site: Site, tmp_path: Path, action: str) -> None:
    """Without lines that are no rows: the task may have written them."""
    site.tracer = Tracer(tmp_path / 'output.prof', 'output')
    task = site.ended(cleanup=True, output_staging={'source': 'result', 'target': 'pilot:///kept', 'action': action})
    row = '1700000000.1234567,app_start,,MainThread,task.000000,AGENT_EXECUTING,mine\n'
    Path(task.sandbox, 'result').touch()
    Path(task.sandbox, 'task.000000.prof').write_text(f'{HEADER}\n{row}1.5,"odd,,,,,\n1.5,cut o')
    stage_out(site, task)
    site.tracer.close()
    lines = Path(tmp_path / 'output.prof').read_text().splitlines(keepends=True)
    assert row in lines
    assert not [line for line in lines if 'odd' in line or 'cut' in line]
    events = [line.split(',')[1] for line in lines]
    assert events.index('staging_uprof_start') < events.index('app_start') < events.index('staging_uprof_stop')


def test_the_profile_stays_in_a_sandbox_that_stays(site: Site, tmp_path: Path) -> None:
    site.tracer = Tracer(tmp_path / 'output.prof', 'output')
    task = site.ended(cleanup=True, sandbox='.')
    Path(task.sandbox, 'task.000000.prof').touch()
    stage_out(site, task)
    site.tracer.close()
    assert 'staging_uprof_start' not in Path(tmp_path / 'output.prof').read_text()


def test_cleanup_is_left_to_the_client_that_needs_the_files(site: Site) -> None:
    task = site.ended(cleanup=True, output_staging={'source': 'result', 'action': TRANSFER})
    stage_out(site, task)
    assert Path(task.sandbox).exists()


@pytest.mark.parametrize('sandbox', ['.', '..', 'task.000000/..'])
def test_cleanup_spares_what_is_not_the_task_s_own(site: Site, sandbox: str) -> None:
    (site.pilot / 'other').touch()
    stage_out(site, site.ended(cleanup=True, sandbox=sandbox))
    assert (site.pilot / 'other').exists()
