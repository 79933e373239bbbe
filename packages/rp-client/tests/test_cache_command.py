"""The command `rp cache`, which removes results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rp_api.errors import PilotError
from rp_api.wire import codec
from rp_client.cache.files import Seen
from rp_client.cache.notes import identity_of, note
from rp_client.cache.store import NAME, ResultStore
from rp_client.cli.cache import cache


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base directory with three results."""
    store = ResultStore(tmp_path / NAME)
    info = codec.pack({'parts': {'module helpers': ''}})
    store.add([(bytes.fromhex(identity), 'of', info, None) for identity in ('aa01', 'aa02', 'bb03')])
    store.close()
    return tmp_path


def left(base: Path) -> set[str]:
    store = ResultStore(base / NAME)
    try:
        return {result.identity.hex() for result in store.results()}
    finally:
        store.close()


def remove(base: Path, *options: str) -> int:
    return cache(['remove', '--base', str(base), *options])


def test_results_are_removed_by_their_first_characters(base: Path) -> None:
    assert remove(base, 'aa02', 'b') == 0
    assert left(base) == {'aa01'}


def test_all_results_are_removed_also_if_there_are_none(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert remove(base, '--all') == 0
    assert left(base) == set()
    assert remove(base, '--all') == 0
    assert capsys.readouterr().err == '3 results removed\n0 results removed\n'


@pytest.mark.parametrize(('options', 'message'), [
    (['aa'], "'aa' is the beginning of 2 results"), (['cc'], "no result 'cc'"), ([''], "'' is the beginning of 3"),
    ([], 'name results, or say --all'), (['aa01', '--all'], 'name results, or say --all')])
def test_wrong_names_remove_nothing(base: Path, options: list[str], message: str) -> None:
    with pytest.raises(PilotError, match=message):
        remove(base, *options)
    assert len(left(base)) == 3


def test_what_a_task_depends_on_is_explained(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def explain(task: str) -> str:
        cache(['explain', task, '--base', str(base)])
        return capsys.readouterr().out

    (base / 'session').mkdir()
    seen = Seen()
    seen.file(str(base / 'session'))
    note(str(base / 'session'), {'task.0': identity_of(b'1', seen, by_key=False),
                                 'task.1': identity_of(b'2', Seen(), by_key=True)}, {'task.2': 'its clock is wrong'})
    told = explain('task.0')
    assert told.startswith(f'The result of task.0 of session depends on its description or arguments, and on\n'
                           f'  file {base}/session\n')
    for outside in ('files that a call or a program opens by itself', 'variables', 'clock', 'network', 'randomness',
                    'libraries of the system'):
        assert outside in told
    assert 'nothing else: its key decides' in explain('task.1')
    with pytest.raises(PilotError, match=r'task.2 of session has no identity: its clock is wrong \(cache=rp.Cache'):
        explain('task.2')
    assert 'The result of bb03, of depends on' in explain('bb')
    assert '  module helpers' in explain('bb03')
    with pytest.raises(PilotError, match='no task'):
        explain('task.3')


def test_json(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cache(['list', '--base', str(base), '--json']) == 0
    assert {row['result'] for row in json.loads(capsys.readouterr().out)} == {'aa01', 'aa02', 'bb03'}
    assert cache(['show', '--base', str(base), '--json']) == 0
    assert json.loads(capsys.readouterr().out)['results'] == 3
    assert cache(['explain', 'aa01', '--base', str(base), '--json']) == 0
    assert json.loads(capsys.readouterr().out)[0]['parts'] == ['module helpers']
    assert remove(base, 'aa01', 'aa02', '--json') == 0
    assert json.loads(capsys.readouterr().out) == {'removed': 2}
