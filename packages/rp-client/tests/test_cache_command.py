"""The command `rp cache`, which removes results."""

from __future__ import annotations

from pathlib import Path

import pytest

from rp_api.errors import PilotError
from rp_client.cache.store import NAME, ResultStore
from rp_client.cli.cache import cache


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base directory with three results."""
    store = ResultStore(tmp_path / NAME)
    store.add([(bytes.fromhex(identity), '', b'', None) for identity in ('aa01', 'aa02', 'bb03')])
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
