"""Carrying out lists of staging directives: what is done, what is traced, and where it stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rp_api.constants import COPY, LINK, NON_FATAL, TRANSFER
from rp_api.errors import DescriptionError, StagingError
from rp_api.staging import Sandboxes, expand
from rp_api.staging.run import check_locations, remove_sandbox, run
from rp_profiling.write.tracer import Tracer


@pytest.fixture
def sandboxes(tmp_path: Path) -> Sandboxes:
    """Directories that exist, one below the other as in a session."""
    found = Sandboxes(client=f'{tmp_path}/client', resource=f'{tmp_path}/resource',
                      session=f'{tmp_path}/resource/session', pilot=f'{tmp_path}/resource/session/pilot',
                      task=f'{tmp_path}/resource/session/pilot/task')
    for path in (found.client, found.task):
        Path(path).mkdir(parents=True)
    return found


class Events(Tracer):
    """A trace that is kept: event, uid and message of each row."""

    def __init__(self) -> None:
        super().__init__(None, 'test')
        self.rows: list[tuple[str, str, str]] = []

    def record(self, event: str, uid: str = '', state: str = '', msg: str = '') -> None:
        self.rows.append((event, uid, msg))


def carry_out(sandboxes: Sandboxes, directives: Any, tracer: Tracer | None = None,
              bases: tuple[str, str] = ('client', 'task')) -> list[str]:
    return run('task.000000', expand(directives), bases, sandboxes, tracer or Events(), 'staging_in')


def test_nothing_to_do(sandboxes: Sandboxes) -> None:
    assert carry_out(sandboxes, []) == []


def test_relative_paths_belong_to_the_bases(sandboxes: Sandboxes) -> None:
    Path(sandboxes.client, 'in').write_text('1')
    assert carry_out(sandboxes, ['in > there', 'in']) == [f'{sandboxes.task}/there', f'{sandboxes.task}/in']
    assert Path(sandboxes.task, 'there').read_text() == Path(sandboxes.task, 'in').read_text() == '1'
    assert carry_out(sandboxes, 'there > back', bases=('task', 'client')) == [f'{sandboxes.client}/back']
    assert Path(sandboxes.client, 'back').read_text() == '1'


def test_directives_are_carried_out_in_order(sandboxes: Sandboxes) -> None:
    Path(sandboxes.client, 'a').write_text('a')
    assert len(carry_out(sandboxes, ['a > pilot:///b', 'pilot:///b > session:///c', 'session:///c > d'])) == 3
    assert Path(sandboxes.task, 'd').read_text() == 'a'


def test_events(sandboxes: Sandboxes) -> None:
    events = Events()
    Path(sandboxes.client, 'a').touch()
    carry_out(sandboxes, [{'source': 'a', 'uid': 'sd.1'}, {'source': 'no', 'uid': 'sd.2', 'flags': NON_FATAL}],
              events)
    assert events.rows == [('staging_in_start', 'task.000000', 'sd.1'), ('staging_in_stop', 'task.000000', 'sd.1'),
                        ('staging_in_start', 'task.000000', 'sd.2'), ('staging_in_fail', 'task.000000', 'sd.2')]


def test_first_failure_ends_the_run(sandboxes: Sandboxes) -> None:
    events = Events()
    Path(sandboxes.client, 'a').touch()
    with pytest.raises(StagingError, match='no'):
        carry_out(sandboxes, [{'source': 'a', 'uid': 'sd.1'}, {'source': 'no', 'uid': 'sd.2'},
                              {'source': 'a', 'target': 'never', 'uid': 'sd.3'}], events)
    assert Path(sandboxes.task, 'a').exists()
    assert not Path(sandboxes.task, 'never').exists()
    assert [event for event, _, _ in events.rows] == [
        'staging_in_start', 'staging_in_stop', 'staging_in_start', 'staging_in_fail']


def test_failures_that_do_not_matter_are_left_out_of_the_targets(sandboxes: Sandboxes) -> None:
    Path(sandboxes.client, 'a').touch()
    assert carry_out(sandboxes, [{'source': 'no', 'flags': NON_FATAL}, 'a']) == [f'{sandboxes.task}/a']


def test_sandbox_that_is_not_known_here(sandboxes: Sandboxes) -> None:
    with pytest.raises(DescriptionError, match='no resource sandbox'):
        carry_out(sandboxes._replace(resource=''), 'resource:///a')


@pytest.mark.parametrize('action', [COPY, LINK, TRANSFER])
def test_locations_that_lead_somewhere(action: str) -> None:
    ends = ['a', '/a', 'file:///a', 'client:///a', 'endpoint:///a', 'resource:///a', 'session:///a', 'pilot://a',
            'task:///a', 'pwd:///a', 'unit:///a', 'staging:///a']
    directives = [{'source': end, 'target': 'b', 'action': action} for end in ends]
    directives += [{'source': 'b', 'target': end, 'action': action} for end in ends]
    check_locations(expand(directives))
    with pytest.raises(DescriptionError, match='nowhere'):   # all of them are looked at
        check_locations(expand([*directives, {'source': 'b', 'target': 'nowhere:///a', 'action': action}]))


@pytest.mark.parametrize('directive', ['nowhere:///a > b', 'a > nowhere:///b', 'client://host@x/a > b',
                                       'a > task://localhost/b', 'a > file://elsewhere/b'])
def test_locations_that_lead_nowhere(directive: str) -> None:
    source, target = directive.split(' > ')
    with pytest.raises(DescriptionError) as caught:
        check_locations(expand(['fine', directive]))
    assert f'staging directive [Transfer {source} > {target}]' in str(caught.value)


def test_sandbox_is_removed(sandboxes: Sandboxes) -> None:
    Path(sandboxes.task, 'below').mkdir()
    Path(sandboxes.task, 'below', 'file').touch()
    remove_sandbox(sandboxes)
    assert not Path(sandboxes.task).exists()
    assert Path(sandboxes.pilot).exists()
    remove_sandbox(sandboxes)


def test_sandbox_elsewhere_stays(sandboxes: Sandboxes, tmp_path: Path) -> None:
    """It may hold what the user had there before the task came."""
    (tmp_path / 'elsewhere').mkdir()
    remove_sandbox(sandboxes._replace(task=f'{tmp_path}/elsewhere'))
    assert (tmp_path / 'elsewhere').exists()


@pytest.mark.parametrize('name', ['pilot', 'session', 'resource'])
def test_sandbox_that_is_not_the_task_s_own_stays(sandboxes: Sandboxes, name: str) -> None:
    remove_sandbox(sandboxes._replace(task=getattr(sandboxes, name)))
    assert Path(sandboxes.task).exists()


def test_sandbox_that_leads_to_the_pilot_s_stays(sandboxes: Sandboxes, tmp_path: Path) -> None:
    (tmp_path / 'other name').symlink_to(tmp_path / 'resource')
    remove_sandbox(sandboxes._replace(task=f'{tmp_path}/other name/session'))
    assert Path(sandboxes.task).exists()
