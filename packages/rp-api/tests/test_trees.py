"""Trees that are deeper than paths can be long and Python can recurse, and trees that are odd in other ways."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rp_api.constants import COPY, MOVE, TARBALL, TRANSFER
from rp_api.errors import StagingError
from rp_api.staging import Directive, expand, perform
from rp_api.staging.tarball import add, pack, unpack
from rp_api.staging.trees import Cursor, remove, walk

NAME = 'd' * 20
DEPTH = 1500
"""Levels of a tree that no path leads to the bottom of, and that no function can call itself for."""

NOBODY = 65534


def make_deep(root: Path, depth: int = DEPTH, name: str = NAME) -> Path:
    """A chain of directories with a file in the last one."""
    root.mkdir()
    fd = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open('bottom', os.O_WRONLY | os.O_CREAT, 0o640, dir_fd=fd))
    os.close(fd)
    return root


def depth_of(root: Path) -> int:
    """The depth at which the file lies."""
    with Cursor(str(root)) as cursor:
        return next(len(cursor.names) for entry in walk(cursor) if entry.name == 'bottom')


def content(root: Path) -> set[tuple[str, int, str]]:
    """All that is below a directory: names, modes, and what files hold or links lead to."""
    found = set()
    for path in root.rglob('*'):
        text = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else ''
        found.add((str(path.relative_to(root)), path.lstat().st_mode, text))
    return found


def directive(action: str = COPY) -> Directive:
    [found] = expand({'source': 'task:///s', 'target': 'task:///t', 'action': action})
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that any user can get to, and that is removed afterwards: pytest cannot remove deep trees."""
    path = Path(tempfile.mkdtemp(prefix='rp.trees.', dir='/tmp'))
    yield path
    remove(str(path))


@contextmanager
def few_descriptors(spare: int) -> Iterator[None]:
    """Let this process open no more than so many files besides those that it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir('/proc/self/fd'))
    fillers = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(fillers, default=highest) + 1 + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fillers:
            os.close(fd)


@contextmanager
def unprivileged(path: Path) -> Iterator[None]:
    """Have no privileges, but own that directory, with all that is in it, which is the working directory."""
    before = os.getcwd()
    os.chdir(path)
    root = os.geteuid() == 0
    try:
        if root:
            for each in (path, *path.rglob('*')):
                os.chown(each, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        yield
    finally:
        if root:
            os.seteuid(0)
        os.chdir(before)


@pytest.mark.parametrize('name', [NAME, 'd'])
def test_deep_tree_is_removed(place: Path, name: str) -> None:
    remove(str(make_deep(place / 'deep', name=name)))
    assert not (place / 'deep').exists()


@pytest.mark.parametrize('action', [COPY, TRANSFER])
def test_deep_tree_is_copied(place: Path, action: str) -> None:
    perform(directive(action), str(make_deep(place / 'deep')), str(place / 'copy'))
    assert depth_of(place / 'copy') == depth_of(place / 'deep') == DEPTH


def test_deep_tree_is_merged_into_another(place: Path) -> None:
    make_deep(place / 'deep')
    make_deep(place / 'copy', DEPTH + 1)
    perform(directive(), str(place / 'deep'), str(place / 'copy'))
    remove(str(place / 'deep'))
    perform(directive(MOVE), str(place / 'copy'), str(place / 'deep'))
    with Cursor(str(place / 'deep')) as cursor:
        assert [len(cursor.names) for entry in walk(cursor) if entry.name == 'bottom'] == [DEPTH, DEPTH + 1]


def test_deep_tree_is_moved_into_another(place: Path) -> None:
    """Which is done as between file systems."""
    make_deep(place / 'deep')
    (place / 'target').mkdir()
    perform(directive(MOVE), str(place / 'deep'), str(place / 'target'))
    assert not (place / 'deep').exists()
    assert depth_of(place / 'target') == DEPTH


@pytest.mark.long
def test_deep_tree_travels_in_an_archive(place: Path) -> None:
    make_deep(place / 'deep')
    sd = directive(TARBALL)
    assert pack(str(place / 'tar'), [(sd, str(place / 'deep'), 'there')]) == []
    unpack(sd, str(place / 'tar'), str(place / 'unpacked'))
    assert depth_of(place / 'unpacked' / 'there') == DEPTH


def test_few_descriptors_are_enough(place: Path) -> None:
    make_deep(place / 'deep')
    with few_descriptors(24):
        perform(directive(), str(place / 'deep'), str(place / 'copy'))
        remove(str(place / 'deep'))
    assert depth_of(place / 'copy') == DEPTH


def test_errors_name_the_real_path(place: Path) -> None:
    for part in ('tree/a/b', 'target/a/b/fifo'):
        (place / part).mkdir(parents=True)
    os.mkfifo(place / 'tree/a/b/fifo')
    with pytest.raises(StagingError, match=f'failed on {place}/tree/a/b/fifo: Neither'):
        perform(directive(), str(place / 'tree'), str(place / 'other'))
    os.unlink(place / 'tree/a/b/fifo')
    (place / 'tree/a/b/fifo').touch()
    with pytest.raises(StagingError, match=f'failed on {place}/target/a/b/fifo: Is a directory'):
        perform(directive(), str(place / 'tree'), str(place / 'target'))


@pytest.mark.parametrize('kind', ['fifo', 'socket'])
def test_what_is_neither_file_nor_directory_is_not_packed(place: Path, kind: str) -> None:
    (place / 'tree').mkdir()
    if kind == 'fifo':
        os.mkfifo(place / 'tree/odd')
    else:
        fd = os.open(place / 'tree', os.O_PATH)
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f'/proc/self/fd/{fd}/odd')
        os.close(fd)
    with pytest.raises(StagingError, match='odd: Neither'):
        pack(str(place / 'tar'), [(directive(TARBALL), str(place / 'tree'), 'tree')])


def test_links_are_not_followed(place: Path) -> None:
    (place / 'precious').mkdir()
    (place / 'precious/file').touch()
    (place / 'tree').mkdir()
    (place / 'tree/self').symlink_to('.')
    (place / 'tree/loop').symlink_to('loop')
    (place / 'tree/out').symlink_to(place / 'precious')
    (place / 'link').symlink_to(place / 'precious')
    perform(directive(), str(place / 'tree'), str(place / 'copy'))
    assert content(place / 'copy') == content(place / 'tree')
    for name in ('tree', 'link'):
        remove(str(place / name))
        assert not os.path.lexists(place / name)
    assert (place / 'precious/file').exists()


def test_links_of_the_target_are_followed(place: Path) -> None:
    """Also in the midst of a tree that is deeper than a cursor has descriptors of."""
    below = 'a/b/c/d/e/f/g/h'
    (place / 'tree' / below).mkdir(parents=True)
    (place / 'tree' / below / 'file').touch()
    (place / 'tree/a/last').touch()
    (place / 'elsewhere').mkdir()
    (place / 'target/a').mkdir(parents=True)
    (place / 'target/a/b').symlink_to(place / 'elsewhere')
    perform(directive(), str(place / 'tree'), str(place / 'target'))
    assert (place / 'elsewhere/c/d/e/f/g/h/file').exists()
    assert (place / 'target/a/last').exists()


def test_modes_are_no_obstacle_to_removal(place: Path) -> None:
    for name, mode in (('none', 0), ('read', 0o444), ('search', 0o111), ('write', 0o222), ('root/none', 0)):
        (place / name / 'below').mkdir(parents=True)
        (place / name / 'below/file').touch()
        (place / name / 'below').chmod(mode)
        (place / name).chmod(mode)
    (place / 'root').chmod(0)
    with unprivileged(place):
        for name in ('none', 'read', 'search', 'write', 'root'):
            remove(name)
    assert os.listdir(place) == []


def test_modes_are_copied_last(place: Path) -> None:
    """A directory that nobody may write to gets its content all the same."""
    (place / 'tree/below').mkdir(parents=True)
    (place / 'tree/below/file').touch()
    for name in ('tree/below', 'tree'):
        (place / name).chmod(0o500)
    with unprivileged(place):
        perform(directive(), 'tree', 'copy')
        pack('tar', [(directive(TARBALL), 'tree', 'there')])
        unpack(directive(TARBALL), 'tar', 'unpacked')
    for copy in ('copy', 'unpacked/there'):
        assert content(place / copy) == content(place / 'tree')
        assert stat.S_IMODE((place / copy).stat().st_mode) == 0o500


def test_what_cannot_be_removed_costs_nothing_else(place: Path) -> None:
    for name in ('first', 'last'):
        (place / 'tree/theirs' / name).mkdir(parents=True)
        (place / 'tree' / name).mkdir()
        (place / 'tree' / name / 'file').touch()
    with unprivileged(place):
        if os.getuid() == 0:
            os.seteuid(0)
            os.chown('tree/theirs', 0, 0)
            os.seteuid(NOBODY)
        else:
            pytest.skip('a user cannot give away a directory')
        with pytest.raises(PermissionError) as caught:
            remove('tree')
    assert caught.value.filename == 'tree/theirs/first'
    assert os.listdir(place / 'tree') == ['theirs']


def test_nothing_to_remove(place: Path) -> None:
    with pytest.raises(FileNotFoundError):
        remove(str(place / 'missing'))


def test_directory_that_is_moved_away_meanwhile(place: Path) -> None:
    """The way back would lead elsewhere: it is not taken."""
    path = place / 'tree/1/2/3/4/5/6/7'
    path.mkdir(parents=True)
    (place / 'elsewhere').mkdir()
    with Cursor(str(place / 'tree')) as cursor:
        for name in '1234567':
            cursor.enter(name)
        os.rename(place / 'tree/1/2', place / 'elsewhere/2')
        for _ in range(5):
            cursor.leave()
        with pytest.raises(OSError, match='moved') as caught:
            cursor.leave()
        assert caught.value.errno == errno.ESTALE
        assert caught.value.filename == str(place / 'tree/1/2')


def test_archive_does_not_hold_itself(place: Path) -> None:
    (place / 'tree').mkdir()
    (place / 'tree/file').touch()
    with tarfile.open(place / 'tree/archive', 'w') as tar:
        add(tar, str(place / 'tree'), 'there')
    with tarfile.open(place / 'tree/archive') as tar:
        assert tar.getnames() == ['there', 'there/file']


names = st.text(st.characters(blacklist_characters='/\0', blacklist_categories=['Cs']), min_size=1, max_size=8).filter(
    lambda name: name not in ('.', '..'))
trees = st.recursive(st.text(max_size=5), lambda below: st.dictionaries(names, below, max_size=4), max_leaves=12)

Tree: TypeAlias = 'str | dict[str, Tree]'


def build(path: Path, tree: Tree) -> None:
    if isinstance(tree, str):
        path.write_text(tree)
        return
    path.mkdir()
    for name, below in tree.items():
        build(path / name, below)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(tree=trees)
def test_any_tree(place: Path, tree: Tree) -> None:
    build(place / 'tree', {'below': tree})
    perform(directive(), str(place / 'tree'), str(place / 'copy'))
    pack(str(place / 'tar'), [(directive(TARBALL), str(place / 'tree'), 'there')])
    unpack(directive(TARBALL), str(place / 'tar'), str(place / 'unpacked'))
    assert content(place / 'copy') == content(place / 'unpacked/there') == content(place / 'tree')
    for name in ('tree', 'copy', 'unpacked'):
        remove(str(place / name))
    assert os.listdir(place) == ['tar']
