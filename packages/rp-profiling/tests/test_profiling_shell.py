"""The helper scripts of tasks, run by /bin/sh as a task runs them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from rp_profiling.read.profile import Row, read_profile
from rp_profiling.write.shell import gtod_script, task_event_script


def install(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


class Sandbox:
    """A task sandbox with the two helpers; `environ` is what the task's commands see."""

    def __init__(self, root: Path) -> None:
        self.target = root / 'task.000007.prof'
        self.environ = {
            'PATH': os.environ['PATH'],
            'RP_GTOD': str(install(root / 'gtod', gtod_script())),
            'RP_PROF': str(install(root / 'prof', task_event_script())),
            'RP_PROF_TGT': str(self.target),
            'RP_TASK_ID': 'task.000007',
        }

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(['/bin/sh', '-c', command], env=self.environ, capture_output=True, text=True)

    def rows(self) -> list[Row]:
        return read_profile(self.target)


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


def assert_silent_success(result: subprocess.CompletedProcess[str]) -> None:
    assert (result.returncode, result.stdout, result.stderr) == (0, '', '')


def test_the_clock_prints_epoch_seconds_with_seven_decimals(sandbox: Sandbox) -> None:
    result = sandbox.run('$RP_GTOD')
    assert re.fullmatch(r'\d{10}\.\d{7}\n', result.stdout)
    assert result.stderr == ''


@pytest.mark.parametrize(
    ('printed', 'time'),
    [
        ('1700000000.123456789', '1700000000.1234567'),
        ('1700000000.000000012', '1700000000.0000000'),
        ('1700000000.5', '1700000000.5000000'),
        ('1700000000.N', '1700000000.0000000'),
        ('1700000000.%N', '1700000000.0000000'),
        ('1700000000.', '1700000000.0000000'),
    ],
)
def test_the_clock_needs_no_fractions_of_date(
    sandbox: Sandbox, tmp_path: Path, printed: str, time: str
) -> None:
    tools = tmp_path / 'tools'
    tools.mkdir()
    install(tools / 'date', f"#!/bin/sh\nprintf '%s\\n' '{printed}'\n")
    sandbox.environ['PATH'] = f'{tools}:{sandbox.environ["PATH"]}'
    assert sandbox.run('$RP_GTOD').stdout == f'{time}\n'


def test_an_event_is_one_row_of_the_task(sandbox: Sandbox) -> None:
    assert_silent_success(sandbox.run('$RP_PROF app_start "step 1"; $RP_PROF app_stop'))

    first, second = sandbox.target.read_text().splitlines()
    assert re.fullmatch(r'\d{10}\.\d{7},app_start,,MainThread,task\.000007,AGENT_EXECUTING,step 1', first)
    assert re.fullmatch(r'\d{10}\.\d{7},app_stop,,MainThread,task\.000007,AGENT_EXECUTING,', second)


@pytest.mark.parametrize(
    ('message', 'stored'),
    [
        ('a,b,', 'a;b;'),
        ('one\ntwo\n', 'one two '),
        ('tab\tand "quotes"', "tab and 'quotes'"),
        ('%s \\n $HOME * [a-z]', '%s \\n $HOME * [a-z]'),
        ('größe 任务, done', 'größe 任务; done'),
        ('-n', '-n'),
    ],
)
def test_whatever_the_message_holds_it_stays_one_row(sandbox: Sandbox, message: str, stored: str) -> None:
    sandbox.environ['MESSAGE'] = message
    assert_silent_success(sandbox.run('$RP_PROF app_data "$MESSAGE"'))
    (row,) = sandbox.rows()
    assert row[1:] == ('app_data', '', 'MainThread', 'task.000007', 'AGENT_EXECUTING', stored)


def test_words_of_an_unquoted_message_are_joined(sandbox: Sandbox) -> None:
    assert_silent_success(sandbox.run('$RP_PROF app_data three more words'))
    assert [row.msg for row in sandbox.rows()] == ['three more words']


def test_ranks_that_record_at_the_same_time_do_not_mix_their_rows(sandbox: Sandbox) -> None:
    ranks = ' '.join(f'$RP_PROF app_rank {rank} &' for rank in range(16))
    assert_silent_success(sandbox.run(f'{ranks} wait'))
    assert sorted(int(row.msg) for row in sandbox.rows()) == list(range(16))


def test_without_a_profile_nothing_happens(sandbox: Sandbox) -> None:
    del sandbox.environ['RP_PROF_TGT']
    assert_silent_success(sandbox.run('set -e; $RP_PROF app_start; $RP_PROF'))
    assert not sandbox.target.exists()


@pytest.mark.parametrize('target', ['/dev/full', '/no/such/directory/task.prof'])
def test_a_profile_that_cannot_be_written_does_not_fail_the_task(sandbox: Sandbox, target: str) -> None:
    sandbox.environ['RP_PROF_TGT'] = target
    assert_silent_success(sandbox.run('set -e; $RP_PROF app_start "a message"'))


def test_without_the_clock_helper_the_time_has_whole_seconds(sandbox: Sandbox) -> None:
    del sandbox.environ['RP_GTOD']
    assert_silent_success(sandbox.run('$RP_PROF app_start'))
    assert re.match(r'\d{10}\.0000000,app_start,', sandbox.target.read_text())


def test_a_call_without_an_event_says_how_to_call(sandbox: Sandbox) -> None:
    result = sandbox.run('$RP_PROF')
    assert result.returncode == 2
    assert result.stderr == 'usage: $RP_PROF event [message]\n'
    assert not sandbox.target.exists()
