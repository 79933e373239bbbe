"""A campaign with ten mistakes: one command tells the cause and the remedy of each, from any directory.

The answers that the guide shows are those of the commands.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import processes_with, wait_until
from watching import as_json, close, rp_command

APPLICATION = Path(__file__).with_name('mistaken.py')
GUIDE = Path(__file__).parents[2] / 'docs' / 'guides' / 'what-is-my-campaign-doing.md'
EXAMPLE = re.compile(r'^    \$ rp (.+)\n((?:    .+\n)+)', re.MULTILINE)
ROW = re.compile(r'^\|([^|]+)\|([^|]+)\|$', re.MULTILINE)


class Mistake(NamedTuple):
    """A mistake: the task, the kind of the reason, and what the answer has to say about cause and remedy."""

    task: str
    kind: str
    cause: str
    remedy: str


ENDED = [
    Mistake('prepare', 'failed.program', 'the program pyhton3 does not exist', 'correct `executable`'),
    Mistake('relax', 'failed.exit', 'atom C17 has no charge', 'read its standard error'),
    Mistake('energy', 'failed.module', "No module named 'openmmm'", 'install it in the environment'),
    Mistake('sample', 'failed.timeout', 'timeout: the task ran longer than 1 s', 'raise `timeout`'),
    Mistake('train', 'failed.description', 'none of the 1 node(s) of the pilot has 2 GPUs for a rank',
            'add a larger pilot'),
    Mistake('plot', 'failed.dependency', 'it is after relax, which is FAILED: exit code 3', 'submit both again'),
    Mistake('dock', 'failed.staging', 'ligand.pdb: No such file or directory', 'correct the source'),
    Mistake('fold', 'failed.crash', 'a segmentation fault', 'debugger'),
]
WAITING = [
    Mistake('score', 'waiting.service', 'waits for service databse (nothing starts it)', 'correct `services`'),
    Mistake('merge', 'waiting.place', 'needs 3 cores on one node, at most 2 are free; services hold the other 2 cores',
            'end one of the services'),
]


def waits_are_told() -> bool:
    """The agent tells what tasks wait for every few seconds."""
    rows = {row['uid']: row['reason'] for row in as_json('task', 'list', '--state', 'waiting')}
    return all(mistake.cause in rows[mistake.task] for mistake in WAITING)


@pytest.fixture(scope='module')
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """The application, whose tasks have ended or wait as they should."""
    base = tmp_path_factory.mktemp('campaign')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('XDG_STATE_HOME', str(base / 'state'))   # the index of sessions
        patch.delenv('RADICAL_PILOT_BASE', raising=False)
        process = subprocess.Popen([sys.executable, APPLICATION], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, cwd=base)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == 'ready\n'
            wait_until(waits_are_told, 30)
            yield process
        finally:
            if process.poll() is None:
                close(process)
            wait_until(lambda: not processes_with(str(base)))


@pytest.fixture(autouse=True)
def elsewhere(campaign: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in another directory than the application."""
    monkeypatch.chdir(tmp_path)


def check(mistake: Mistake) -> None:
    answer = rp_command('why', mistake.task)
    first, _, rest = answer.partition('\n')
    assert first.startswith(f'{mistake.task} is ')
    assert mistake.cause in answer
    remedy = rest.partition('what to do: ')[2]
    assert mistake.remedy in remedy
    assert len(remedy.splitlines()) == 1


@pytest.mark.parametrize('mistake', [*ENDED, *WAITING], ids=lambda mistake: mistake.task)
def test_one_command_tells_the_cause_and_the_remedy(mistake: Mistake) -> None:
    check(mistake)


def test_lists_show_all_of_them_at_a_glance() -> None:
    rows = {row['uid']: row for row in as_json('task', 'list', '--failed')}
    assert {uid: row['kind'] for uid, row in rows.items()} == {each.task: each.kind for each in ENDED}
    assert as_json('task', 'list', '--failed', '--count') == {'FAILED': 6, 'CANCELED': 2}
    assert {row['uid'] for row in as_json('task', 'list', '--state', 'canceled')} == {'sample', 'plot', 'raptor.0000'}
    assert len(as_json('task', 'list', '--failed', '--state', 'canceled')) == 9   # what either of them chooses
    failures = {each['kind']: (each['tasks'], each['example']) for each in as_json('top')['failures']}
    assert failures == {each.kind: (1, each.task) for each in ENDED}


def test_the_guide_shows_what_the_commands_say() -> None:
    text = GUIDE.read_text()
    assert len(text.split()) <= 800
    examples = EXAMPLE.findall(text)
    assert len(examples) >= 4
    for command, shown in examples:
        said = rp_command(*command.split())
        wanted = '.*'.join(re.escape(' '.join(part.split())) for part in shown.split('...'))
        assert re.search(wanted, ' '.join(said.split())), f'rp {command} says\n{said}'


def test_the_table_of_the_guide_has_the_answers() -> None:
    _, _, *rows = ROW.findall(GUIDE.read_text())
    answers = [rp_command('why', mistake.task) for mistake in (*ENDED, *WAITING)]
    said = [[index for index, answer in enumerate(answers) if cause.strip() in answer] for _, cause in rows]
    assert sorted(said) == [[index] for index in range(10)]


def test_the_causes_are_told_after_the_session_as_well(campaign: subprocess.Popen[str]) -> None:
    close(campaign)
    for mistake in ENDED:
        check(mistake)
