"""Archives of many small files for the action TARBALL: packing on one side, unpacking on the other."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterable

from rp_api.constants import NON_FATAL, TARBALL
from rp_api.errors import StagingError
from rp_api.staging.directive import Directive
from rp_api.staging.files import fault, is_directory_name, made_directory, matches, replacing
from rp_api.staging.run import explained
from rp_api.staging.trees import Cursor, walk

Accept = Callable[[tarfile.TarInfo], tarfile.TarInfo]


def pack(tarball: str, members: Iterable[tuple[Directive, str, str]]) -> list[StagingError]:
    """Write a tar file, replacing an existing one, and return the errors of NON_FATAL directives.

    `members` are directives, each with the path of its source and its name in the archive: a path relative to the
    directory where the archive will be unpacked. Directories are packed recursively; wildcards, and names that end in a
    slash or dot, mean the same as in a copy. Raise a StagingError for any other member that cannot be packed.
    """
    members = list(members)
    try:
        with replacing(tarball) as temporary, tarfile.open(temporary, 'w') as tar:
            errors = [_try_add(tar, tarball, *member) for member in members]
    except OSError as error:
        directive = f'{TARBALL} of {len(members)} directives'
        raise StagingError(directive, tarball, error.strerror or str(error)) from error
    return [error for error in errors if error]


def _try_add(tar: tarfile.TarFile, tarball: str, sd: Directive, source: str,
             name: str) -> StagingError | None:
    try:
        with explained(sd, tarball):
            _add(tar, source, name)
    except StagingError as error:
        # an error while writing corrupts the archive, whatever the flags are
        if sd['flags'] & NON_FATAL and error.path != tarball:
            return error
        raise
    return None


def _add(tar: tarfile.TarFile, source: str, name: str) -> None:
    found = matches(source)
    into = found is not None or is_directory_name(name)
    for each in [source] if found is None else found:
        # a source may be a link to the file or directory; links inside of a directory stay links
        path = os.path.realpath(each, strict=True)
        member = os.path.join(name, os.path.basename(each.rstrip('/'))) if into else name
        _check_name(member)
        add(tar, path, os.path.normpath(member), _accept)


def add(tar: tarfile.TarFile, path: str, name: str, accept: Accept | None = None) -> None:
    """Add a file or directory under that name, except for the archive itself; raise OSError on failure.

    `accept` filters the members, and raises for those that are not allowed.
    """
    tar.add(path, name, recursive=False, filter=accept)
    if os.path.islink(path) or not os.path.isdir(path):
        return
    own = os.stat(str(tar.name))
    with Cursor(path) as cursor:
        for entry in walk(cursor):
            if entry.left or os.path.samestat(entry.status, own):
                continue
            names = cursor.names if entry.entered else [*cursor.names, entry.name]
            try:
                if accept is not None and stat.S_ISSOCK(entry.status.st_mode):   # tarfile would skip it silently
                    raise fault(errno.EINVAL, cursor.at(entry.name), 'Neither a file nor a directory')
                tar.add(cursor.at('.' if entry.entered else entry.name), '/'.join([name, *names]), recursive=False,
                        filter=accept)
            except OSError as error:
                cursor.explain(error)
                raise


def unpack(sd: Directive, tarball: str, directory: str) -> list[str]:
    """Unpack a tar file below the directory, and return the paths of the files and links in it.

    Nothing is written outside of the directory, whatever the archive contains. Existing files are replaced, directories
    are merged. Raise a StagingError on failure.
    """
    with explained(sd, directory):
        try:
            with tarfile.open(tarball, 'r:') as tar:
                return _extract_all(tar, directory)
        except (tarfile.TarError, KeyError) as error:
            raise fault(errno.EINVAL, tarball, f'Not a valid tar file: {error}') from error


def _check_name(name: str) -> None:
    if os.path.isabs(name) or '..' in name.split('/') or not name.strip('/.'):
        raise fault(errno.EINVAL, name, 'Not a path inside of the directory to unpack in')


def _accept(member: tarfile.TarInfo) -> tarfile.TarInfo:
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        raise fault(errno.EINVAL, member.name, 'Neither a file nor a directory')
    return member


def _extract_all(tar: tarfile.TarFile, directory: str) -> list[str]:
    found: list[str] = []
    modes: list[tuple[list[str], str, int]] = []
    os.makedirs(directory, exist_ok=True)
    with Cursor(directory) as cursor:
        try:
            for member in tar:
                _check_name(member.name)
                _accept(member)
                *parents, name = os.path.normpath(member.name).split('/')
                _go(cursor, parents)
                if not member.isdir():
                    _extract(tar, member, cursor.at(name))
                    found.append(os.path.join(directory, member.name))
                elif made_directory(cursor.at(name)):
                    modes.append((parents, name, member.mode & 0o777))
            for parents, name, mode in reversed(modes):  # last, and innermost first: a mode may deny access
                _go(cursor, parents)
                os.chmod(cursor.at(name), mode)
        except OSError as error:
            cursor.explain(error)
            raise
    return found


def _go(cursor: Cursor, names: list[str]) -> None:
    """Move to a directory, creating missing ones on the way, and following links that stay inside of the root."""
    while cursor.names != names[:len(cursor.names)]:
        cursor.leave()
    for name in names[len(cursor.names):]:
        path = cursor.at(name)
        made_directory(path)
        follow = os.path.islink(path)
        if follow:
            _check_link(path, cursor)
        cursor.enter(name, follow=follow)


def _check_link(path: str, cursor: Cursor) -> None:
    """Raise if a link leads out of the root directory."""
    root = os.path.realpath(cursor.root)
    if os.path.commonpath([root, os.path.realpath(path)]) != root:
        raise fault(errno.EINVAL, path, f'Leads out of {cursor.root}')


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    with replacing(path) as temporary:
        if member.issym():
            os.symlink(member.linkname, temporary)
        else:
            _write(tar, member, temporary)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    content = tar.extractfile(member)
    if content is None:
        raise fault(errno.EINVAL, path, 'Has no content')
    with content, open(path, 'wb') as file:
        shutil.copyfileobj(content, file)
        os.fchmod(file.fileno(), member.mode & 0o777)
