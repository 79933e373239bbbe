"""What staging directives do with real files: copies, links, moves, downloads, tar files, and failures."""

from __future__ import annotations

import contextlib
import http.server
import io
import itertools
import os
import resource
import socket
import stat
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rp_api.constants import (
    COPY,
    CREATE_PARENTS,
    DOWNLOAD,
    LINK,
    MOVE,
    NON_FATAL,
    RECURSIVE,
    TARBALL,
    TRANSFER,
)
from rp_api.errors import StagingError
from rp_api.staging import Directive, attempt, expand, perform, web
from rp_api.staging.tarball import pack, unpack

COPIES = [COPY, TRANSFER, TARBALL]
ODD_NAMES = [
    'a b', "it's", 'say "hi"', 'new\nline', 'naïve ☃', '-rf', '$HOME', '`id`', '100%25', 'a;b', '*', '~',
    '[x]', 'a\\b', ' ', os.fsdecode(b'\xff\xfe'),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with files, a link, and a directory below it."""
    root = tmp_path / 'tree'
    (root / 'sub').mkdir(parents=True)
    (root / 'one').write_text('1')
    (root / 'sub' / 'two').write_text('2')
    (root / 'link').symlink_to('sub/two')
    return root


def a_directive(action: str = COPY, flags: int = CREATE_PARENTS, source: str = 'task:///s',
                target: str = 'task:///t') -> Directive:
    source = 'http://h/s' if action == DOWNLOAD else source
    [sd] = expand({'source': source, 'target': target, 'action': action, 'flags': flags})
    return sd


def stage(source: str | Path, target: str | Path, action: str = COPY, flags: int = CREATE_PARENTS) -> str:
    return perform(a_directive(action, flags), os.fspath(source), os.fspath(target))


def fails(source: str | Path, target: str | Path, action: str = COPY, flags: int = CREATE_PARENTS) -> StagingError:
    """The error that staging ends with."""
    with pytest.raises(StagingError) as caught:
        stage(source, target, action, flags)
    return caught.value


def content(path: Path) -> dict[str, str | None]:
    """All that is below a directory: relative path to text, link target, or None for a directory."""
    found: dict[str, str | None] = {}
    for base, dirs, files in os.walk(path):
        for name in dirs + files:
            full = os.path.join(base, name)
            relative = os.path.relpath(full, path)
            if os.path.islink(full):
                found[relative] = '-> ' + os.readlink(full)
            else:
                found[relative] = None if os.path.isdir(full) else Path(full).read_text()
    return found


TREE = {'one': '1', 'sub': None, 'sub/two': '2', 'link': '-> sub/two'}


class TestCopy:
    @pytest.mark.parametrize('action', [*COPIES, DOWNLOAD])
    def test_file(self, tmp_path: Path, action: str) -> None:
        (tmp_path / 'a').write_text('hello')
        assert stage(tmp_path / 'a', tmp_path / 'b', action) == str(tmp_path / 'b')
        assert content(tmp_path) == {'a': 'hello', 'b': 'hello'}

    def test_mode_bits_are_kept(self, tmp_path: Path) -> None:
        for mode in 0o755, 0o600, 0o444:
            source = tmp_path / f'{mode:o}'
            source.write_text('x')
            source.chmod(mode)
            stage(source, tmp_path / 'copy')
            assert stat.S_IMODE((tmp_path / 'copy').stat().st_mode) == mode

    def test_existing_file_is_replaced_at_once(self, tmp_path: Path) -> None:
        (tmp_path / 'a').write_text('new')
        (tmp_path / 'b').write_text('old')
        with open(tmp_path / 'b') as reader:
            stage(tmp_path / 'a', tmp_path / 'b')
            assert reader.read() == 'old'  # who reads the old file is not disturbed
        assert (tmp_path / 'b').read_text() == 'new'

    @pytest.mark.parametrize('target', ['dir', 'dir/', 'dir/.', 'new/', 'new/deep/'])
    def test_file_into_a_directory(self, tmp_path: Path, target: str) -> None:
        (tmp_path / 'dir').mkdir()
        (tmp_path / 'a').write_text('x')
        path = stage(tmp_path / 'a', f'{tmp_path}/{target}')
        assert os.path.samefile(path, tmp_path / target / 'a')
        assert (tmp_path / target / 'a').read_text() == 'x'

    @pytest.mark.parametrize('flags', [CREATE_PARENTS, CREATE_PARENTS | RECURSIVE])
    def test_directory(self, tmp_path: Path, tree: Path, flags: int) -> None:
        (tree / 'sub').chmod(0o750)
        stage(tree, tmp_path / 'new', flags=flags)
        assert content(tmp_path / 'new') == TREE
        assert stat.S_IMODE((tmp_path / 'new' / 'sub').stat().st_mode) == 0o750

    def test_directory_with_a_trailing_slash(self, tmp_path: Path, tree: Path) -> None:
        assert stage(f'{tree}/', f'{tmp_path}/new/') == f'{tmp_path}/new/tree'
        assert content(tmp_path / 'new' / 'tree') == TREE

    def test_directory_onto_a_directory_is_merged_and_repeatable(self, tmp_path: Path, tree: Path) -> None:
        other = tmp_path / 'other'
        (other / 'sub').mkdir(parents=True)
        (other / 'one').write_text('old')
        (other / 'sub' / 'three').write_text('3')
        for _ in range(2):
            stage(tree, other)
            assert content(other) == {**TREE, 'sub/three': '3'}

    def test_directory_onto_a_file(self, tmp_path: Path, tree: Path) -> None:
        (tmp_path / 'file').write_text('x')
        error = fails(tree, tmp_path / 'file')
        assert (error.path, error.reason) == (str(tmp_path / 'file'), 'Not a directory')

    def test_file_onto_a_directory_in_a_merge(self, tmp_path: Path, tree: Path) -> None:
        (tmp_path / 'other' / 'one').mkdir(parents=True)
        error = fails(tree, tmp_path / 'other')
        assert (error.path, error.reason) == (str(tmp_path / 'other' / 'one'), 'Is a directory')

    def test_source_that_is_a_link_is_followed(self, tmp_path: Path, tree: Path) -> None:
        (tmp_path / 'shortcut').symlink_to('tree')
        stage(tmp_path / 'shortcut', tmp_path / 'new')
        assert not (tmp_path / 'new').is_symlink()
        assert content(tmp_path / 'new') == TREE
        stage(tree / 'link', tmp_path / 'file')
        assert (tmp_path / 'file').read_text() == '2'

    def test_target_that_is_a_link_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / 'a').write_text('new')
        (tmp_path / 'victim').write_text('old')
        (tmp_path / 'b').symlink_to('victim')
        stage(tmp_path / 'a', tmp_path / 'b')
        assert content(tmp_path) == {'a': 'new', 'b': 'new', 'victim': 'old'}

    def test_onto_itself_does_nothing(self, tmp_path: Path, tree: Path) -> None:
        for path in tree, tree / 'one':
            stage(path, path)
        stage(tree / 'one', tree)
        (tmp_path / 'same').symlink_to('tree/one')
        stage(tree / 'one', tmp_path / 'same')
        assert content(tree) == TREE

    @pytest.mark.parametrize('action', [COPY, MOVE])
    def test_directory_into_itself(self, tree: Path, action: str) -> None:
        error = fails(tree, tree / 'sub' / 'below', action)
        assert 'cannot be staged into itself' in error.reason
        assert content(tree) == TREE

    def test_empty_and_large_files(self, tmp_path: Path) -> None:
        (tmp_path / 'empty').write_bytes(b'')
        (tmp_path / 'large').write_bytes(os.urandom(1 << 21))
        for name in 'empty', 'large':
            stage(tmp_path / name, tmp_path / 'copy')
            assert (tmp_path / 'copy').read_bytes() == (tmp_path / name).read_bytes()

    def test_nothing_temporary_is_left(self, tmp_path: Path, tree: Path) -> None:
        stage(tree, tmp_path / 'new')
        fails(tmp_path / 'missing', tmp_path / 'x')
        assert sorted(os.listdir(tmp_path)) == ['new', 'tree']


@pytest.mark.parametrize('action', [COPY, LINK, MOVE, TRANSFER])
class TestAllLocalActions:
    @pytest.mark.parametrize('name', ODD_NAMES, ids=ascii)
    def test_odd_names(self, tmp_path: Path, action: str, name: str) -> None:
        (tmp_path / 'in').mkdir()
        (tmp_path / 'in' / name).write_text('x')
        assert stage(tmp_path / 'in' / name, tmp_path / name / name, action) == str(tmp_path / name / name)
        assert (tmp_path / name / name).read_text() == 'x'

    def test_missing_source(self, tmp_path: Path, action: str) -> None:
        error = fails(tmp_path / 'no such', tmp_path / 'b', action)
        assert (error.path, error.reason) == (str(tmp_path / 'no such'), 'No such file or directory')
        assert error.directive == f'{action} task:///s > task:///t'
        assert str(tmp_path / 'no such') in str(error)
        assert not (tmp_path / 'b').exists()

    def test_unreadable_source(self, tmp_path: Path, action: str) -> None:
        (tmp_path / 'file').write_text('x')
        error = fails(tmp_path / 'file' / 'below', tmp_path / 'b', action)
        assert (error.path, error.reason) == (str(tmp_path / 'file' / 'below'), 'Not a directory')

    @pytest.mark.parametrize('flags', [0, CREATE_PARENTS])
    def test_target_below_a_file(self, tmp_path: Path, action: str, flags: int) -> None:
        (tmp_path / 'a').write_text('x')
        (tmp_path / 'file').write_text('y')
        for target in tmp_path / 'file' / 'b', tmp_path / 'file' / 'deep' / 'b':
            error = fails(tmp_path / 'a', target, action, flags)
            assert error.path.startswith(str(tmp_path / 'file'))
            assert error.reason == 'Not a directory' if flags else 'CREATE_PARENTS' in error.reason
        assert content(tmp_path) == {'a': 'x', 'file': 'y'}

    def test_parents(self, tmp_path: Path, action: str) -> None:
        (tmp_path / 'a').write_text('x')
        error = fails(tmp_path / 'a', tmp_path / 'x' / 'y' / 'b', action, flags=RECURSIVE)
        assert error.path == str(tmp_path / 'x' / 'y')
        assert error.reason == 'No such directory, and the flag CREATE_PARENTS is not set'
        stage(tmp_path / 'a', tmp_path / 'x' / 'y' / 'b', action)
        assert (tmp_path / 'x' / 'y' / 'b').read_text() == 'x'

    def test_device_is_not_replaced(self, tmp_path: Path, action: str) -> None:
        os.mkfifo(tmp_path / 'fifo')
        (tmp_path / 'a').write_text('x')
        error = fails(tmp_path / 'a', tmp_path / 'fifo', action)
        assert error.path == str(tmp_path / 'fifo')
        assert 'not replaced' in error.reason
        assert stat.S_ISFIFO((tmp_path / 'fifo').stat().st_mode)

    def test_non_fatal(self, tmp_path: Path, action: str) -> None:
        sd = a_directive(action, CREATE_PARENTS | NON_FATAL)
        error = attempt(sd, str(tmp_path / 'no'), str(tmp_path / 'b'))
        assert isinstance(error, StagingError)
        assert error.reason == 'No such file or directory'
        with pytest.raises(StagingError):
            attempt(a_directive(action), str(tmp_path / 'no'), str(tmp_path / 'b'))
        (tmp_path / 'a').write_text('x')
        assert attempt(sd, str(tmp_path / 'a'), str(tmp_path / 'b')) is None

    def test_too_long_a_name(self, tmp_path: Path, action: str) -> None:
        (tmp_path / 'a').write_text('x')
        error = fails(tmp_path / 'a', tmp_path / ('b' * 300), action)
        assert (error.path, error.reason) == (str(tmp_path / ('b' * 300)), 'File name too long')
        stage(tmp_path / 'a', tmp_path / ('b' * 255), action)

    def test_wildcards(self, tmp_path: Path, action: str) -> None:
        (tmp_path / '[in]').mkdir()
        for name in 'a.txt', 'b.txt', 'c.dat':
            (tmp_path / '[in]' / name).write_text(name)
        assert stage(f'{tmp_path}/[in]/*.txt', tmp_path / 'out', action) == f'{tmp_path}/out'
        assert sorted(os.listdir(tmp_path / 'out')) == ['a.txt', 'b.txt']
        assert (tmp_path / 'out' / 'a.txt').read_text() == 'a.txt'
        stage(f'{tmp_path}/[in]/?.da[st]', f'{tmp_path}/out/.', action)
        assert (tmp_path / 'out' / 'c.dat').read_text() == 'c.dat'

    def test_wildcards_without_a_match(self, tmp_path: Path, action: str) -> None:
        error = fails(tmp_path / 'x*', tmp_path / 'out', action)
        assert (error.path, error.reason) == (str(tmp_path / 'x*'), 'No file matches')

    def test_wildcards_that_match_one_name_twice(self, tmp_path: Path, action: str) -> None:
        for name in 'p', 'q':
            (tmp_path / name).mkdir()
            (tmp_path / name / 'a').write_text(name)
        assert 'the same name' in fails(tmp_path / '*' / 'a', tmp_path / 'out', action).reason

    def test_a_name_that_looks_like_a_pattern(self, tmp_path: Path, action: str) -> None:
        (tmp_path / 'a[1]').write_text('x')
        (tmp_path / 'a1').write_text('y')
        assert stage(tmp_path / 'a[1]', tmp_path / 'b', action) == str(tmp_path / 'b')
        assert (tmp_path / 'b').read_text() == 'x'


class TestSpecialFiles:
    def test_they_are_not_copied(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / 'fifo')
        for source in tmp_path / 'fifo', '/dev/zero':
            error = fails(source, tmp_path / 'copy')
            assert (error.path, error.reason) == (str(source), 'Neither a file nor a directory')

    def test_nor_inside_a_directory(self, tmp_path: Path, tree: Path) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(tree / 'socket'))
            error = fails(tree, tmp_path / 'copy')
        assert error.path == str(tree / 'socket')


class TestLink:
    def test_symbolic_and_absolute(self, tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        stage(tree / 'one', tmp_path / 'b', LINK)
        assert os.readlink(tmp_path / 'b') == str(tree / 'one')
        monkeypatch.chdir(tmp_path)
        stage('tree/one', 'c', LINK)
        assert os.readlink(tmp_path / 'c') == str(tree / 'one')

    def test_directory(self, tmp_path: Path, tree: Path) -> None:
        for _ in range(2):
            stage(tree, tmp_path / 'b', LINK)
        assert os.readlink(tmp_path / 'b') == str(tree)
        assert content(tree) == TREE

    def test_into_a_directory(self, tmp_path: Path, tree: Path) -> None:
        (tmp_path / 'dir').mkdir()
        for _ in range(2):
            assert stage(tree, tmp_path / 'dir', LINK) == str(tmp_path / 'dir' / 'tree')
        assert content(tmp_path / 'dir') == {'tree': f'-> {tree}'}

    def test_replaces_files_and_links(self, tmp_path: Path, tree: Path) -> None:
        (tmp_path / 'file').write_text('old')
        (tmp_path / 'old').symlink_to(tree / 'sub')
        for name in 'file', 'old':
            stage(tree / 'one', tmp_path / name, LINK)
            assert os.readlink(tmp_path / name) == str(tree / 'one')

    def test_to_itself(self, tree: Path) -> None:
        error = fails(tree / 'one', tree / 'one', LINK)
        assert error.reason == 'A file cannot be a link to itself'
        assert 'itself' in fails(tree / 'one', tree, LINK).reason
        assert content(tree) == TREE


class TestMove:
    def test_file_and_directory(self, tmp_path: Path, tree: Path) -> None:
        stage(tree / 'one', tmp_path / 'b', MOVE)
        assert (tmp_path / 'b').read_text() == '1'
        assert not (tree / 'one').exists()
        stage(tree, tmp_path / 'moved', MOVE)
        assert content(tmp_path / 'moved') == {'sub': None, 'sub/two': '2', 'link': '-> sub/two'}
        assert not tree.exists()

    def test_onto_itself_does_nothing(self, tree: Path) -> None:
        stage(tree / 'one', tree / 'one', MOVE)
        stage(tree, tree, MOVE)
        assert content(tree) == TREE

    def test_onto_another_name_of_the_same_file(self, tmp_path: Path, tree: Path) -> None:
        os.link(tree / 'one', tmp_path / 'b')
        stage(tree / 'one', tmp_path / 'b', MOVE)
        assert (tmp_path / 'b').read_text() == '1'
        assert not (tree / 'one').exists()

    def test_directories_are_merged(self, tmp_path: Path, tree: Path) -> None:
        (tmp_path / 'other' / 'sub').mkdir(parents=True)
        (tmp_path / 'other' / 'sub' / 'three').write_text('3')
        stage(tree, tmp_path / 'other', MOVE)
        assert content(tmp_path / 'other') == {**TREE, 'sub/three': '3'}
        assert not tree.exists()

    def test_directory_onto_the_one_it_is_in(self, tree: Path) -> None:
        assert 'into itself' in fails(tree / 'sub', tree, MOVE).reason
        assert content(tree) == TREE

    def test_directory_onto_a_file(self, tmp_path: Path, tree: Path) -> None:
        (tmp_path / 'file').write_text('x')
        error = fails(tree, tmp_path / 'file', MOVE)
        assert error.reason == 'Not a directory'
        assert content(tree) == TREE

    def test_link_is_moved_itself(self, tmp_path: Path, tree: Path) -> None:
        stage(tree / 'link', tmp_path / 'b', MOVE)
        assert os.readlink(tmp_path / 'b') == 'sub/two'

    def test_to_another_file_system(self, tmp_path: Path, tree: Path, other_file_system: Path) -> None:
        stage(tree / 'one', other_file_system / 'one', MOVE)
        assert not (tree / 'one').exists()
        stage(tree, other_file_system / 'rest', MOVE)
        assert not tree.exists()
        assert content(other_file_system / 'rest') == {'sub': None, 'sub/two': '2', 'link': '-> sub/two'}
        stage(other_file_system / 'rest' / 'link', tmp_path / 'link', MOVE)
        assert os.readlink(tmp_path / 'link') == 'sub/two'
        assert not os.path.lexists(other_file_system / 'rest' / 'link')


@pytest.fixture
def other_file_system(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB, if this user may mount one."""
    place = tmp_path / 'mounted'
    place.mkdir()
    command = ['mount', '-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', str(place)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        (pytest.fail if 'CI' in os.environ else pytest.skip)('no mount command')
    if done.returncode:
        (pytest.fail if 'CI' in os.environ else pytest.skip)(
            f'cannot mount a file system: {done.stderr.decode().strip()}')
    yield place
    subprocess.run(['umount', str(place)], check=True)


class TestFullDisk:
    @pytest.mark.parametrize('action', [COPY, MOVE])
    def test_no_space(self, tmp_path: Path, other_file_system: Path, action: str) -> None:
        (tmp_path / 'large').write_bytes(bytes(1 << 18))
        (other_file_system / 'copy').write_text('old')
        error = fails(tmp_path / 'large', other_file_system / 'copy', action)
        assert (error.path, error.reason) == (str(other_file_system / 'copy'), 'No space left on device')
        assert content(other_file_system) == {'copy': 'old'}  # neither a piece nor anything temporary
        assert (tmp_path / 'large').stat().st_size == 1 << 18

    def test_file_size_limit(self, tmp_path: Path) -> None:
        (tmp_path / 'large').write_bytes(bytes(1 << 18))
        with file_size_limit(1 << 16):
            error = fails(tmp_path / 'large', tmp_path / 'copy')
        assert (error.path, error.reason) == (str(tmp_path / 'copy'), 'File too large')
        assert os.listdir(tmp_path) == ['large']

    def test_download_and_tar_file(self, tmp_path: Path, site: str) -> None:
        (tmp_path / 'large').write_bytes(bytes(1 << 18))
        with file_size_limit(1 << 16):
            error = fails(f'{site}/large', tmp_path / 'copy', DOWNLOAD)
            assert (error.path, error.reason) == (str(tmp_path / 'copy'), 'File too large')
            with pytest.raises(StagingError, match='File too large'):
                pack(str(tmp_path / 't.tar'), [(a_directive(TARBALL), str(tmp_path / 'large'), 'x')])
        assert os.listdir(tmp_path) == ['large']


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Server(http.server.ThreadingHTTPServer):
    """The server of the site, and the event that its slow answer waits for."""

    def __init__(self, address: tuple[str, int], handler: type[Site]) -> None:
        super().__init__(address, handler)
        self.patience = threading.Event()


class Site(http.server.BaseHTTPRequestHandler):
    """A site with good and bad files."""

    def do_GET(self) -> None:
        size = 1 << 18 if self.path == '/large' else 5
        body = bytes(size) if self.path == '/large' else b'hello'
        if self.path == '/gone':
            self.send_error(404)
            return
        if self.path == '/moved':
            self.send_response(302)
            self.send_header('Location', '/dir/file')
            self.end_headers()
            return
        if self.path == '/garbage':
            self.wfile.write(b'no HTTP at all\r\n\r\n')
            return
        self.send_response(200)
        self.send_header('Content-Length', str(1000 if self.path == '/cut' else len(body)))
        self.end_headers()
        if self.path != '/slow':
            self.wfile.write(body)
            return
        self.wfile.flush()
        assert isinstance(self.server, Server)
        self.server.patience.wait()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """The URL of the site."""
    with Server(('127.0.0.1', 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.01})
        thread.start()
        yield f'http://127.0.0.1:{server.server_port}'
        server.patience.set()
        server.shutdown()
        thread.join()


class TestDownload:
    def test_file(self, tmp_path: Path, site: str) -> None:
        (tmp_path / 'b').write_text('old')
        assert stage(f'{site}/file', tmp_path / 'b', DOWNLOAD) == str(tmp_path / 'b')
        assert (tmp_path / 'b').read_text() == 'hello'

    def test_redirect(self, tmp_path: Path, site: str) -> None:
        stage(f'{site}/moved', tmp_path / 'b', DOWNLOAD)
        assert (tmp_path / 'b').read_text() == 'hello'

    @pytest.mark.parametrize(('path', 'name'), [('dir/f%20g?x=/1', 'f g'), ('a b', 'a b'), ('ü', 'ü')])
    def test_into_a_directory(self, tmp_path: Path, site: str, path: str, name: str) -> None:
        stage(f'{site}/{path}', f'{tmp_path}/new/', DOWNLOAD)
        assert content(tmp_path / 'new') == {name: 'hello'}

    @pytest.mark.parametrize(('path', 'reason'), [
        ('gone', 'HTTP status 404 Not Found'), ('cut', 'IncompleteRead|ended after 5 of 1000'),
        ('garbage', 'BadStatusLine')])
    def test_failures(self, tmp_path: Path, site: str, path: str, reason: str) -> None:
        (tmp_path / 'b').write_text('old')
        with pytest.raises(StagingError, match=reason) as caught:
            stage(f'{site}/{path}', tmp_path / 'b', DOWNLOAD)
        assert caught.value.path == f'{site}/{path}'
        assert content(tmp_path) == {'b': 'old'}

    def test_server_that_falls_silent(self, tmp_path: Path, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(web, 'TIMEOUT', 0.05)
        assert 'timed out' in fails(f'{site}/slow', tmp_path / 'b', DOWNLOAD).reason
        assert content(tmp_path) == {}

    def test_no_server(self, tmp_path: Path) -> None:
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            url = f'http://127.0.0.1:{taken.getsockname()[1]}/x'
            error = fails(url, tmp_path / 'b', DOWNLOAD)
        assert (error.path, error.reason) == (url, 'Connection refused')

    @pytest.mark.parametrize('url', ['http://[x/y', 'http://127.0.0.1:port/y'])
    def test_bad_url(self, tmp_path: Path, url: str) -> None:
        assert fails(url, tmp_path / 'b', DOWNLOAD).path == url

    def test_non_fatal(self, tmp_path: Path, site: str) -> None:
        sd = a_directive(DOWNLOAD, NON_FATAL)
        error = attempt(sd, f'{site}/gone', str(tmp_path / 'b'))
        assert error is not None
        assert error.reason == 'HTTP status 404 Not Found'


class TestTarball:
    def test_many_files_and_directories(self, tmp_path: Path, tree: Path) -> None:
        sd = a_directive(TARBALL)
        (tree / 'one').chmod(0o750)
        (tree / 'sub').chmod(0o700)
        (tmp_path / 'shortcut').symlink_to('tree/one')
        os.link(tree / 'one', tree / 'same')
        members = [(sd, str(tree), 'in/tree'), (sd, str(tmp_path / 'shortcut'), 'x'),
                   (sd, f'{tree}/o*', '.'), (sd, str(tree / 'one'), 'into/')]
        assert pack(str(tmp_path / 't.tar'), members) == []
        paths = unpack(sd, str(tmp_path / 't.tar'), str(tmp_path / 'out' / 'deep'))
        out = tmp_path / 'out' / 'deep'
        assert content(out / 'in' / 'tree') == {**TREE, 'same': '1'}
        for name in 'x', 'one', 'into/one':
            assert (out / name).read_text() == '1'
            assert not (out / name).is_symlink()
        assert stat.S_IMODE((out / 'x').stat().st_mode) == 0o750
        assert stat.S_IMODE((out / 'in' / 'tree' / 'sub').stat().st_mode) == 0o700
        assert len(paths) == 7
        assert all(map(os.path.lexists, paths))

    def test_repeated_unpacking_replaces(self, tmp_path: Path, tree: Path) -> None:
        sd, tarball, out = a_directive(TARBALL), str(tmp_path / 't.tar'), str(tmp_path / 'out')
        pack(tarball, [(sd, str(tree), 'tree')])
        unpack(sd, tarball, out)
        (tmp_path / 'out' / 'tree' / 'one').write_text('old')
        unpack(sd, tarball, out)
        assert content(tmp_path / 'out' / 'tree') == TREE

    def test_odd_names(self, tmp_path: Path) -> None:
        sd = a_directive(TARBALL)
        (tmp_path / 'in').mkdir()
        for name in ODD_NAMES:
            (tmp_path / 'in' / name).write_text(name, errors='surrogateescape')
        pack(str(tmp_path / 't.tar'), [(sd, str(tmp_path / 'in' / name), name) for name in ODD_NAMES])
        unpack(sd, str(tmp_path / 't.tar'), str(tmp_path / 'out'))
        assert sorted(os.listdir(tmp_path / 'out')) == sorted(ODD_NAMES)

    def test_missing_source(self, tmp_path: Path, tree: Path) -> None:
        good, bad = a_directive(TARBALL), a_directive(TARBALL, NON_FATAL)
        members = [(bad, str(tmp_path / 'no'), 'no'), (good, str(tree / 'one'), 'one')]
        [error] = pack(str(tmp_path / 't.tar'), members)
        assert (error.path, error.reason) == (str(tmp_path / 'no'), 'No such file or directory')
        with tarfile.open(tmp_path / 't.tar') as tar:
            assert tar.getnames() == ['one']
        with pytest.raises(StagingError):
            pack(str(tmp_path / 'u.tar'), [(good, str(tmp_path / 'no'), 'no')])
        assert not (tmp_path / 'u.tar').exists()

    @pytest.mark.parametrize('name', ['/abs', '../x', 'a/../../x', '', '.'])
    def test_names_that_lead_out_are_not_packed(self, tmp_path: Path, tree: Path, name: str) -> None:
        os.makedirs(tmp_path / 'x')
        with contextlib.ExitStack() as stack:
            if name not in ('', '.'):
                stack.enter_context(pytest.raises(StagingError, match='Not a path inside'))
            pack(str(tmp_path / 't.tar'), [(a_directive(TARBALL), str(tree / 'one'), name)])

    def test_place_that_cannot_be_written(self, tmp_path: Path, tree: Path) -> None:
        with pytest.raises(StagingError, match='No such file or directory') as caught:
            pack(str(tmp_path / 'no' / 't.tar'), [(a_directive(TARBALL, NON_FATAL), str(tree / 'one'), 'x')])
        assert caught.value.path == str(tmp_path / 'no' / 't.tar')
        (tree / 'large').write_bytes(bytes(1 << 12))
        with file_size_limit(1 << 12), pytest.raises(StagingError, match='File too large'):
            pack(str(tmp_path / 't.tar'), [(a_directive(TARBALL, NON_FATAL), str(tree / 'large'), 'x')])
        assert not (tmp_path / 't.tar').exists()

    def test_special_files_are_not_packed(self, tmp_path: Path, tree: Path) -> None:
        os.mkfifo(tree / 'fifo')
        with pytest.raises(StagingError, match='Neither a file nor a directory'):
            pack(str(tmp_path / 't.tar'), [(a_directive(TARBALL), str(tree), 'x')])

    @pytest.mark.parametrize('members', [
        [('../evil', None)], [('/tmp/rp_evil', None)], [('a/../../evil', None)],
        [('link', '..'), ('link/evil', None)], [('dir', '/tmp'), ('dir/rp_evil', None)],
        [('dev', 'DEVICE')]])
    def test_hostile_tar_files(self, tmp_path: Path, members: list[tuple[str, str | None]]) -> None:
        tarball, out = tmp_path / 't.tar', tmp_path / 'out'
        out.mkdir()
        with tarfile.open(tarball, 'w') as tar:
            for name, link in members:
                member = tarfile.TarInfo(name)
                member.size = 0 if link else 4
                if link:
                    member.type, member.linkname = tarfile.SYMTYPE, link
                if link == 'DEVICE':
                    member.type = tarfile.CHRTYPE
                tar.addfile(member, None if link else io.BytesIO(b'evil'))
        with pytest.raises(StagingError):
            unpack(a_directive(TARBALL), str(tarball), str(out))
        assert not os.path.exists('/tmp/rp_evil')
        assert sorted(os.listdir(tmp_path)) == ['out', 't.tar']

    @pytest.mark.parametrize('cut', [100, 700, 1100])
    def test_damaged_tar_file(self, tmp_path: Path, tree: Path, cut: int) -> None:
        tarball = tmp_path / 't.tar'
        (tree / 'one').write_bytes(os.urandom(5000))
        pack(str(tarball), [(a_directive(TARBALL), str(tree / 'one'), 'one')])
        tarball.write_bytes(tarball.read_bytes()[:cut])
        with pytest.raises(StagingError, match='Not a valid tar file') as caught:
            unpack(a_directive(TARBALL), str(tarball), str(tmp_path / 'out'))
        assert caught.value.path == str(tarball)
        assert content(tmp_path / 'out') == {}

    def test_no_tar_file(self, tmp_path: Path) -> None:
        with pytest.raises(StagingError, match='No such file') as caught:
            unpack(a_directive(TARBALL), str(tmp_path / 't.tar'), str(tmp_path))
        assert caught.value.path == str(tmp_path / 't.tar')


CHARACTERS = st.characters(blacklist_characters='/\0', blacklist_categories=['Cs'])
NAMES = st.text(CHARACTERS, min_size=1, max_size=30)
numbers = itertools.count()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(NAMES.filter(lambda name: name not in ('.', '..')), st.binary(max_size=100))
def test_any_name_and_content(tmp_path: Path, name: str, data: bytes) -> None:
    place = tmp_path / str(next(numbers))
    place.mkdir()
    (place / name).write_bytes(data)
    path = stage(place / name, f'{place}/out/')
    with open(path, 'rb') as copy:
        assert copy.read() == data
    assert path == f'{place}/out/{name}'
