"""Archives of directories that are unpacked at another path, with a real virtual environment."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

from rp_agent.node_copies.archive import CopyError, moved, pack, unpack


def packed(directory: Path) -> bytes:
    made = io.BytesIO()
    pack(str(directory), made)
    return made.getvalue()


def unpacked(content: bytes, final: Path) -> Path:
    """Unpack beside the final path and move it there, as the unpacker does."""
    part = final.with_name(f'{final.name}.part')
    unpack(io.BytesIO(content), str(part), str(final))
    part.rename(final)
    return final


@pytest.fixture(scope='module')
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a virtual environment with a package, a script and an extension; the environment is gone."""
    base = tmp_path_factory.mktemp('shared')
    made = base / 'a-long-name-as-on-a-shared-file-system' / 'env'
    venv.create(made, symlinks=True)
    site = Path(sysconfig.get_path('purelib', 'venv', {'base': str(made), 'platbase': str(made)}))
    (site / 'parcel').mkdir()
    (site / 'parcel' / '__init__.py').write_text('import sys\n\n\ndef main():\n    print(__file__, sys.prefix)\n')
    (site / 'parcel' / '__main__.py').write_text('from parcel import main\n\nmain()\n')
    import msgpack._cmsgpack as extension

    shutil.copytree(Path(extension.__file__).parent, site / 'msgpack', dirs_exist_ok=True)
    script = made / 'bin' / 'parcel'
    script.write_text(f'#!{made}/bin/python\nfrom parcel import main\n\nmain()\n')
    script.chmod(0o755)
    (made / 'absolute').symlink_to(site / 'parcel')
    (made / 'data.bin').write_bytes(b'\0' + os.fsencode(made) + b'/share\0rest')
    subprocess.run([made / 'bin' / 'python', '-m', 'compileall', '-q', site / 'parcel'], check=True)
    archive = base / 'env.tgz'
    archive.write_bytes(packed(made))
    shutil.rmtree(made)
    return archive


@pytest.fixture(scope='module')
def copy(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(environment.read_bytes(), tmp_path_factory.mktemp('n') / 'env')


def output(*command: str | Path) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True, env={'PATH': '/usr/bin:/bin'}
                          ).stdout.split()


def test_scripts_and_modules_of_a_moved_environment(copy: Path) -> None:
    source, prefix = output(copy / 'bin' / 'parcel')
    assert prefix == str(copy)
    assert Path(source).is_relative_to(copy)
    assert output(copy / 'bin' / 'python', '-m', 'parcel')[1] == str(copy)
    assert output(copy / 'bin' / 'python', '-c', 'import msgpack._cmsgpack as m; print(m.__file__)')[0].startswith(
        str(copy))


def test_an_activated_environment_has_the_new_path(copy: Path) -> None:
    script = f'. {copy}/bin/activate && echo $VIRTUAL_ENV && command -v parcel'
    assert output('/bin/sh', '-c', script) == [str(copy), str(copy / 'bin' / 'parcel')]


def test_byte_code_stays_valid(copy: Path) -> None:
    """Its times of the sources are right: Python would write it again otherwise."""
    [cached] = copy.glob('lib/*/site-packages/parcel/__pycache__/__init__.*.pyc')
    before = cached.stat().st_mtime_ns
    output(copy / 'bin' / 'python', '-c', 'import parcel')
    assert cached.stat().st_mtime_ns == before


def test_links_and_binaries_point_to_the_copy(copy: Path) -> None:
    assert (copy / 'absolute').resolve().is_relative_to(copy.resolve())
    content = (copy / 'data.bin').read_bytes()
    assert content.startswith(b'\0' + os.fsencode(copy) + b'/share\0')
    assert content.endswith(b'\0rest')


def test_no_text_names_the_old_path(environment: Path, copy: Path) -> None:
    old = os.fsencode(environment.parent)
    assert [path for path in copy.rglob('*') if path.is_file() and not path.is_symlink() and path.suffix != '.pyc'
            and old in path.read_bytes()] == []


def test_binaries_cannot_get_a_longer_path(environment: Path, tmp_path: Path) -> None:
    with pytest.raises(CopyError, match=r'data\.bin is a binary that contains the path .* longer'):
        unpack(io.BytesIO(environment.read_bytes()), str(tmp_path / 'part'), f'/{"x" * 500}')


def test_archives_depend_only_on_the_content(tmp_path: Path) -> None:
    one = tmp_path / 'one'
    for name in ('b', 'a'):
        (one / name).mkdir(parents=True)
        (one / name / 'file').write_text(name)
    first = packed(one)
    assert packed(one) == first


@pytest.mark.parametrize('share', [0.0, 0.5, 0.9])
def test_incomplete_archives_are_refused(tmp_path: Path, share: float) -> None:
    (tmp_path / 'one').mkdir()
    (tmp_path / 'one' / 'file').write_bytes(os.urandom(100_000))
    content = packed(tmp_path / 'one')
    with pytest.raises(CopyError, match='incomplete'):
        unpack(io.BytesIO(content[:int(share * len(content))]), str(tmp_path / 'part'), '/final')


@pytest.mark.parametrize('name', ['/absolute', 'a/../../b'])
def test_entries_outside_of_the_directory_are_refused(tmp_path: Path, name: str) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode='w|gz') as tar:
        tar.addfile(tarfile.TarInfo(name))
    made.seek(0)
    with pytest.raises(CopyError, match='outside of its directory'):
        unpack(made, str(tmp_path / 'part'), '/final')


def test_modes_and_empty_entries_are_kept(tmp_path: Path) -> None:
    source = tmp_path / 'one'
    (source / 'empty').mkdir(parents=True)
    (source / 'none').touch(0o640)
    (source / 'closed').mkdir()
    (source / 'closed' / 'file').write_text('x')
    (source / 'closed').chmod(0o500)
    copy = unpacked(packed(source), tmp_path / 'two')
    assert (copy / 'none').stat().st_mode & 0o777 == 0o640
    assert (copy / 'closed').stat().st_mode & 0o777 == 0o500
    assert not any((copy / 'empty').iterdir())


def test_other_entries_than_files_cannot_be_packed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / 'fifo')
    with pytest.raises(CopyError, match='neither a file'):
        packed(tmp_path)


def test_strings_of_binaries_are_padded() -> None:
    assert moved(b'a\0/old/path/lib:/old/path\0b', b'/old/path', b'/n') == b'a\0/n/lib:/n' + bytes(14) + b'\0b'
