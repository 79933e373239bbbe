"""Directories and files that belong to one user alone: what is made, what is taken, what is refused."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rp_api.errors import CoordinationError, OwnershipError
from rp_api.system import private

ME = os.geteuid()


@pytest.fixture
def another_user(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it to be somebody else, to whom all that is there belongs to another user."""
    return lambda: monkeypatch.setattr(os, 'geteuid', lambda: ME + 4321)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# directories

@pytest.mark.parametrize('umask', [0, 0o022, 0o077])
def test_new_directories_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        private.make_directory(tmp_path / 'a' / 'b' / 'c')
    finally:
        os.umask(before)
    assert mode(tmp_path / 'a' / 'b' / 'c') == 0o700
    assert mode(tmp_path / 'a') == 0o777 & ~umask   # a base directory, which may be shared


def test_a_directory_of_ours_is_taken(tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir(0o700)
    (tmp_path / 'd' / 'file').touch()
    private.make_directory(tmp_path / 'd')
    assert (tmp_path / 'd' / 'file').exists()


def test_a_directory_that_has_to_be_a_fresh_one(tmp_path: Path) -> None:
    private.make_directory(tmp_path / 'd', fresh=True)
    with pytest.raises(FileExistsError):
        private.make_directory(tmp_path / 'd', fresh=True)
    (tmp_path / 'link').symlink_to(tmp_path / 'nowhere')
    with pytest.raises(FileExistsError):
        private.make_directory(tmp_path / 'link', fresh=True)


def test_others_who_could_only_read_are_shut_out_or_may_go_on(tmp_path: Path) -> None:
    for name, readable, left in (('a', False, 0o2700), ('b', True, 0o2755)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o2755)
        private.make_directory(tmp_path / name, readable=readable)
        assert mode(tmp_path / name) == left


@pytest.mark.parametrize('bits', [0o720, 0o702, 0o777, 0o1777])
@pytest.mark.parametrize('readable', [False, True])
def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path, bits: int, readable: bool) -> None:
    (tmp_path / 'd').mkdir()
    (tmp_path / 'd').chmod(bits)
    for use in (private.make_directory, private.check):
        with pytest.raises(OwnershipError, match=rf'{tmp_path}/d is not ours alone: others may \w+.* .mode {bits:04o}'):
            use(tmp_path / 'd', readable=readable)
    assert mode(tmp_path / 'd') == bits


def test_a_directory_of_another_user_is_refused_by_name(tmp_path: Path, another_user: Callable[[], None]) -> None:
    (tmp_path / 'd').mkdir(0o700)
    another_user()
    words = rf'{tmp_path}/d is not ours alone: it belongs to user {ME} .{pwd.getpwuid(ME).pw_name}., .* mode 0700'
    for use in (private.make_directory, private.check):
        with pytest.raises(OwnershipError, match=words):
            use(tmp_path / 'd')


@pytest.mark.skipif(ME != 0, reason='only root can give directories away')
def test_a_user_without_a_name_is_a_number(tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    os.chown(tmp_path / 'd', 54321, 54321)
    with pytest.raises(OwnershipError, match=r'belongs to user 54321, another user than 0 .root.'):
        private.make_directory(tmp_path / 'd')


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'own').mkdir(0o700)
    (tmp_path / 'link').symlink_to(tmp_path / 'own')
    (tmp_path / 'dangling').symlink_to(tmp_path / 'nowhere')
    (tmp_path / 'file').touch(0o600)
    os.mkfifo(tmp_path / 'pipe', 0o600)
    for name, words in {'link': 'a symbolic link of user', 'dangling': 'a symbolic link of user',
                        'file': 'not a directory', 'pipe': 'not a directory'}.items():
        with pytest.raises(OwnershipError, match=f'{name} is not ours alone: it is {words}'):
            private.make_directory(tmp_path / name)
    assert not (tmp_path / 'nowhere').exists()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        private.open_directory(tmp_path / 'nowhere')
    (tmp_path / 'file').touch()
    with pytest.raises(NotADirectoryError):
        private.make_directory(tmp_path / 'file' / 'd')


def test_the_descriptor_is_that_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir(0o700)
    descriptor = private.open_directory(tmp_path / 'd')
    (tmp_path / 'd').rename(tmp_path / 'elsewhere')
    try:
        assert os.path.samestat(os.fstat(descriptor), (tmp_path / 'elsewhere').stat())
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


def test_the_error_is_known_by_several_names(tmp_path: Path) -> None:
    (tmp_path / 'd').symlink_to(tmp_path)
    for kind in (CoordinationError, PermissionError):
        with pytest.raises(kind, match=re.escape(f'{tmp_path}/d is not ours alone')):
            private.check(tmp_path / 'd')


# entries of shared directories

@pytest.mark.parametrize(('bits', 'refused'), [(0o1777, True), (0o777, True), (0o775, False), (0o755, False)])
@pytest.mark.parametrize('entry', ['directory', 'link'])
@pytest.mark.skipif(ME != 0, reason='only root can give entries away')
def test_an_entry_of_another_user_where_everyone_can_make_some(tmp_path: Path, bits: int, refused: bool,
                                                               entry: str) -> None:
    path = tmp_path / 'shared' / 'known.name'
    path.parent.mkdir()
    path.symlink_to(tmp_path) if entry == 'link' else path.mkdir()
    path.parent.chmod(bits)
    private.check_entry(path)
    os.lchown(path, 54321, 54321)
    if refused:
        with pytest.raises(OwnershipError, match=r'known\.name is not ours alone: it belongs to user 54321, in a dir'):
            private.check_entry(path)
    else:
        private.check_entry(path)
    os.chown(path.parent, 54321, 54321)   # who has offered the directory for all may have made it, too
    private.check_entry(path)


# files

def test_files_are_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / 'file'
    for content, bits in ((b'first', 0o600), (b'second', 0o700)):
        private.write_file(path, content, bits)
        assert (path.read_bytes(), mode(path)) == (content, bits)
        path.chmod(0o644)
    assert os.listdir(tmp_path) == ['file']


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / 'precious').write_text('x')
    (tmp_path / 'file').symlink_to(tmp_path / 'precious')
    private.write_file(tmp_path / 'file', b'y')
    assert (tmp_path / 'precious').read_text() == 'x'
    assert (tmp_path / 'file').read_text() == 'y'
    assert not (tmp_path / 'file').is_symlink()


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / 'file' / 'x').mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        private.write_file(tmp_path / 'file', b'')
    assert os.listdir(tmp_path) == ['file']


def test_a_private_file_is_read(tmp_path: Path) -> None:
    private.write_file(tmp_path / 'file', b'content')
    assert private.read_file(tmp_path / 'file') == b'content'
    assert private.read_file(tmp_path / 'file', 3) == b'con'


@pytest.mark.parametrize(('bits', 'readable'), [(0o644, True), (0o640, True), (0o620, False), (0o602, False)])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, bits: int, readable: bool) -> None:
    path = tmp_path / 'file'
    path.touch()
    path.chmod(bits)
    with pytest.raises(OwnershipError, match=f'others may use it .mode {bits:04o}, allowed is 0600'):
        private.read_file(path)
    if readable:
        os.close(private.open_file(path, readable=True))
        private.check(path)
    else:
        for use in (private.check, lambda path: private.open_file(path, readable=True)):
            with pytest.raises(OwnershipError, match=f'others may write to it .mode {bits:04o}, allowed is 0600'):
                use(path)


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path, another_user: Callable[[], None]) -> None:
    private.write_file(tmp_path / 'file', b'')
    (tmp_path / 'link').symlink_to(tmp_path / 'file')
    (tmp_path / 'directory').mkdir(0o700)
    os.mkfifo(tmp_path / 'pipe', 0o600)
    for name in ('link', 'directory', 'pipe'):
        with pytest.raises(OwnershipError, match=f'{name} is not ours alone: it is '):
            private.read_file(tmp_path / name)
    another_user()
    for use in (private.read_file, private.check):
        with pytest.raises(OwnershipError, match=f'it belongs to user {ME} '):
            use(tmp_path / 'file')


def test_a_file_is_made_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        os.close(private.open_file(tmp_path / 'file', os.O_RDWR | os.O_CREAT))
    finally:
        os.umask(before)
    assert mode(tmp_path / 'file') == 0o600
    with pytest.raises(FileNotFoundError):
        private.open_file(tmp_path / 'absent')
