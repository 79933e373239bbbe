"""Local file operations of staging directives.

Operations are idempotent where possible, since staging may be repeated after a failure: existing files are replaced;
copying a file to itself and creating an existing link do nothing. A file appears under its name only when it is
complete. Directories are copied recursively, with or without the flag RECURSIVE.

A target that ends in a slash, or is an existing directory, takes the source under its own name; but a directory that is
copied or moved to an existing directory is merged into it. A source with wildcards that is not itself the name of a
file stands for all matching files, and its target is a directory.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_numbers = itertools.count()


def has_wildcard(name: str) -> bool:
    """Return whether the name may be a pattern for several files."""
    return any(character in name for character in '*?[')


def fault(number: int, path: str, reason: str = '') -> OSError:
    """Return an OSError with the path, and the system's message or `reason`."""
    return OSError(number, reason or os.strerror(number), path)


def prepare(target: str, parents: bool) -> None:
    """Create the parent directory of the target, if the directive allows it."""
    parent = os.path.dirname(target) or os.curdir
    if os.path.isdir(parent):
        return
    if not parents:
        raise fault(errno.ENOENT, parent, 'No such directory, and the flag CREATE_PARENTS is not set')
    try:
        os.makedirs(parent, exist_ok=True)
    except FileExistsError:
        raise fault(errno.ENOTDIR, parent) from None


def matches(source: str) -> list[str] | None:
    """Return the sorted files that match a source with wildcards; None for a source without."""
    if not has_wildcard(source) or os.path.lexists(source):
        return None
    import glob  # rarely needed

    # the existing part of the path is not a pattern, even if it contains wildcards
    literal, rest = source, ''
    while literal and not os.path.lexists(literal):
        literal, name = os.path.split(literal.rstrip('/'))
        rest = os.path.join(name, rest) if rest else name
    found = sorted(glob.glob(os.path.join(glob.escape(literal), rest)))
    if not found:
        raise fault(errno.ENOENT, source, 'No file matches')
    if len({os.path.basename(match) for match in found}) < len(found):
        raise fault(errno.EEXIST, source, 'Several files that match have the same name')
    return found


def is_directory_name(target: str) -> bool:
    """Return whether the name of the target implies a directory."""
    return os.path.basename(target) in ('', '.', '..')


@contextmanager
def replacing(target: str) -> Iterator[str]:
    """Provide a temporary path beside the target, which is renamed to the target unless an error occurs.

    A link is replaced, not followed. Directories, devices and the like are never replaced.
    """
    _check_replaceable(target)
    temporary = os.path.join(os.path.dirname(target), f'.rp.{os.getpid()}.{next(_numbers)}')
    try:
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        if temporary in (error.filename, error.filename2):
            raise fault(error.errno or errno.EIO, target) from error
        raise
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def made_directory(path: str) -> bool:
    """Create a directory; return False if it exists, or is a link to a directory."""
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise fault(errno.ENOTDIR, path) from None
        return False
    return True


def _check_replaceable(target: str) -> None:
    if not os.path.lexists(target):
        return
    mode = os.lstat(target).st_mode
    if stat.S_ISDIR(mode):
        raise fault(errno.EISDIR, target)
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise fault(errno.EEXIST, target, 'Neither a file nor a directory, so it is not replaced')


def operate(operation: Callable[[str, str], None], source: str, target: str, parents: bool) -> str:
    """Perform an operation on one source, and return the resulting path."""
    source = source.rstrip('/') or '/'
    target = _destination(operation, source, target)
    prepare(target, parents)
    operation(source, target)
    return target


def _destination(operation: Callable[[str, str], None], source: str, target: str) -> str:
    """Return the resulting path: the target, or the source's name below it."""
    into = is_directory_name(target)
    if not into and os.path.isdir(target):
        into = not os.path.islink(target) if operation is link else not os.path.isdir(source)
    return os.path.join(target, os.path.basename(source)) if into else target


def copy(source: str, target: str) -> None:
    """Copy a file, or a directory with all that it contains, to `target`."""
    mode = os.stat(source).st_mode
    if stat.S_ISDIR(mode):
        _refuse_inside(source, target)
        _copy_tree(source, target)
    elif stat.S_ISREG(mode):
        _copy_file(source, target)
    else:
        raise fault(errno.EINVAL, source, 'Neither a file nor a directory')


def _copy_file(source: str, target: str) -> None:
    import shutil  # importing it is slow, and many sessions stage nothing

    if os.path.exists(target) and os.path.samefile(source, target):
        return
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)
        shutil.copymode(source, temporary)


def _copy_tree(source: str, target: str) -> None:
    """Copy the content of a directory; symbolic links in it stay links."""
    from rp_api.staging.trees import Cursor, walk  # rarely needed

    made = [made_directory(target)]
    if not made[0] and os.path.samefile(source, target):
        return
    with Cursor(source) as here, Cursor(target) as there:
        try:
            for entry in walk(here):
                path = there.at(entry.name)
                if entry.entered:
                    made.append(made_directory(path))
                    there.enter(entry.name, follow=os.path.islink(path))
                elif entry.left:
                    there.leave()
                    if made.pop():  # last, since the mode may forbid writing
                        os.chmod(there.at(entry.name), stat.S_IMODE(entry.status.st_mode))
                elif stat.S_ISLNK(entry.status.st_mode):
                    _copy_link(here.at(entry.name), path)
                else:
                    copy(here.at(entry.name), path)
        except OSError as error:
            here.explain(error)
            there.explain(error)
            raise
    if made[0]:
        os.chmod(target, stat.S_IMODE(os.stat(source).st_mode))


def _copy_link(source: str, target: str) -> None:
    with replacing(target) as temporary:
        os.symlink(os.readlink(source), temporary)


def link(source: str, target: str) -> None:
    """Create a symbolic link with an absolute target."""
    os.stat(source)  # raises now rather than when the link is used
    source = os.path.abspath(source)
    if os.path.islink(target) and os.readlink(target) == source:
        return
    place = os.path.join(os.path.realpath(os.path.dirname(target)), os.path.basename(target))
    if place == os.path.realpath(source):
        raise fault(errno.ELOOP, target, 'A file cannot be a link to itself')
    with replacing(target) as temporary:
        os.symlink(source, temporary)


def move(source: str, target: str) -> None:
    """Move a file or a directory to `target`; merge a directory into one that exists."""
    if os.path.lexists(target) and os.path.realpath(source) == os.path.realpath(target):
        return
    is_tree = os.path.isdir(source) and not os.path.islink(source)
    if is_tree:
        _refuse_inside(source, target)
    if is_tree and os.path.isdir(target):
        _refuse_inside(target, source)
        _move_by_copy(source, target, is_tree)
        return
    try:
        _rename(source, target, is_tree)
    except OSError as error:
        if error.errno == errno.EXDEV:  # another file system
            _move_by_copy(source, target, is_tree)
        elif error.filename2 and os.path.lexists(source):  # so the error concerns the target
            raise fault(error.errno or errno.EIO, target) from error
        else:
            raise


def _rename(source: str, target: str, is_tree: bool) -> None:
    if is_tree:
        os.rename(source, target)
        return
    _check_replaceable(target)
    same = os.path.exists(target) and os.path.samefile(source, target)
    os.replace(source, target)
    if same:  # two names of one file: the system keeps both
        os.unlink(source)


def _move_by_copy(source: str, target: str, is_tree: bool) -> None:
    if is_tree:
        from rp_api.staging.trees import remove

        copy(source, target)
        remove(source)
        return
    if os.path.islink(source):
        _copy_link(source, target)
    else:
        copy(source, target)
    os.unlink(source)


def _refuse_inside(source: str, target: str) -> None:
    """Raise if the target lies below the source, which would be copied into itself."""
    tree, place = os.path.realpath(source), os.path.realpath(target)
    if place != tree and os.path.commonpath([tree, place]) == tree:
        raise fault(errno.EINVAL, target, f'The directory {source} cannot be staged into itself')
