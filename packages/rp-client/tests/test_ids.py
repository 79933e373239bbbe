"""Session ids are unique, whatever the file system does."""

from __future__ import annotations

import getpass
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rp_api.errors import OwnershipError
from rp_client.ids import is_one, session_directory, session_uid, uids_of

UUID = r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv('RADICAL_BASE', str(tmp_path))
    monkeypatch.delenv('RADICAL_PILOT_SID_BASE', raising=False)
    return tmp_path


def test_an_id_tells_host_user_day_and_number() -> None:
    first, second = session_uid(), session_uid()
    host = os.uname().nodename.partition('.')[0]
    assert re.fullmatch(rf'rp\.session\.{re.escape(host)}\.{getpass.getuser()}\.\d{{6}}\.0000-[0-9a-f]{{16}}', first)
    assert second.startswith(first[:-21] + '0001-')
    assert second[-16:] != first[-16:]   # which nobody can tell beforehand


def test_the_application_may_choose_all_but_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_SID_BASE', 'my/run')
    assert [session_uid() for _ in range(3)] == ['my/run.0000', 'my/run.0001', 'my/run.0002']
    monkeypatch.setenv('RADICAL_PILOT_SID_BASE', 'other')
    assert session_uid() == 'other.0000'


def test_many_threads_and_processes_get_different_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_SID_BASE', 'many')
    ids: list[str] = []
    program = 'from rp_client.ids import session_uid\nfor _ in range(50): print(session_uid())'
    processes = [subprocess.Popen([sys.executable, '-c', program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    threads = [threading.Thread(target=lambda: ids.extend([session_uid() for _ in range(50)])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        ids += process.communicate()[0].split()
    assert sorted(ids) == [f'many.{number:04d}' for number in range(300)]


def counter(base: Path) -> Path:
    return base / '.radical' / 'pilot' / 'counters' / 'x'


@pytest.mark.parametrize('obstacle', ['a file in the way', 'no number', 'no home', 'full disk'])
def test_without_a_counter_the_id_is_random(base: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str) -> None:
    monkeypatch.setenv('RADICAL_PILOT_SID_BASE', 'x')
    if obstacle == 'a file in the way':
        (base / '.radical').write_text('')
    elif obstacle == 'no number':
        counter(base).parent.mkdir(parents=True)
        counter(base).write_text('not a number')
    elif obstacle == 'no home':
        monkeypatch.delenv('RADICAL_BASE')
        monkeypatch.setattr(Path, 'home', no_home)
    else:
        assert session_uid() == 'x.0000'
        monkeypatch.setattr(os, 'pwrite', no_space)
    first, second = session_uid(), session_uid()
    assert re.fullmatch(rf'x\.{UUID}', first)
    assert first != second


def no_home() -> Path:
    raise RuntimeError('Could not determine home directory.')


def no_space(*_: object) -> int:
    raise OSError(28, 'No space left on device')


def test_a_full_disk_does_not_make_the_numbers_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_SID_BASE', 'x')
    assert session_uid() == 'x.0000'
    with monkeypatch.context() as context:
        context.setattr(os, 'pwrite', no_space)
        session_uid()
    assert session_uid() == 'x.0001'


def test_numbers_may_get_long(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_SID_BASE', 'x')
    counter(base).parent.mkdir(parents=True)
    counter(base).write_text('9999')
    assert [session_uid() for _ in range(2)] == ['x.9999', 'x.10000']


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError('uid not found')

    monkeypatch.setattr(getpass, 'getuser', nobody)
    assert f'.{os.getuid()}.' in session_uid()


# directories

@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory where every user can make entries."""
    path = tmp_path / 'shared'
    path.mkdir()
    path.chmod(0o1777)
    return path


def test_a_new_session_has_a_new_directory(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there already is not its own, whoever has made it."""
    monkeypatch.setenv('RADICAL_PILOT_SID_BASE', 'x')
    (shared / 'x.0000').mkdir()
    (shared / 'x.0001').symlink_to('/nowhere')
    (shared / 'x.0002').write_text('')
    assert session_directory(str(shared), None, None) == ('x.0003', f'{shared}/x.0003')
    assert mode(shared / 'x.0003') == 0o700


def test_a_directory_that_is_named_is_made_or_taken(shared: Path) -> None:
    assert session_directory(str(shared), 'u', None) == ('u', f'{shared}/u')
    assert session_directory(str(shared), 'u', None) == ('u', f'{shared}/u')
    uid, path = session_directory(str(shared), None, str(shared / 'above' / 'own'))
    assert uid.startswith('rp.session.')
    assert path == f'{shared}/above/own'
    assert mode(shared / 'u') == mode(shared / 'above' / 'own') == 0o700


def test_a_directory_that_others_could_read_is_closed(shared: Path) -> None:
    (shared / 'u').mkdir(0o755)
    session_directory(str(shared), 'u', None)
    assert mode(shared / 'u') == 0o700


@pytest.mark.parametrize('bits', [0o777, 0o1777, 0o770, 0o722])
def test_a_directory_that_others_could_write_to_is_refused(shared: Path, bits: int) -> None:
    """They may have put something there."""
    (shared / 'u').mkdir()
    (shared / 'u').chmod(bits)
    with pytest.raises(OwnershipError, match=f'{shared}/u is not ours alone: others may write to it .mode {bits:04o}'):
        session_directory(str(shared), 'u', None)
    assert mode(shared / 'u') == bits


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_objects_stand_for_their_uids() -> None:
    task = SimpleNamespace(uid='task.1')
    assert uids_of(task) == uids_of('task.1') == ['task.1']
    assert uids_of([task, 'task.2']) == uids_of(iter((task, 'task.2'))) == ['task.1', 'task.2']
    assert [is_one(each) for each in (task, 'task.1', [task], None)] == [True, True, False, False]


@pytest.mark.parametrize('wrong', [5, [5], [None], [b'task.1'], SimpleNamespace(uid=5)])
def test_what_has_no_uid(wrong: Any) -> None:
    with pytest.raises(TypeError, match='with a uid'):
        uids_of(wrong)
