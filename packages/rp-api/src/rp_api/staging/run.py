"""Execution of staging directives: of one, and of those of a task or pilot in sequence, with trace events."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rp_api.constants import CREATE_PARENTS, NON_FATAL
from rp_api.errors import DescriptionError, StagingError
from rp_api.logger import logger
from rp_api.staging.directive import Directive, describe
from rp_api.staging.location import Sandboxes, acts_on_client, resolve
from rp_api.staging.protocol import masked, performer, transport
from rp_api.staging.trees import remove
from rp_profiling.write.tracer import Tracer

LOG = 'radical.pilot.staging'

_ANYWHERE = Sandboxes(client='/', resource='/', session='/', pilot='/', task='/')
# errors that concern the target, whichever of the two files the system names
_TARGET_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


def perform(sd: Directive, source: str, target: str) -> str:
    """Perform a directive, and return the path of the result (with wildcards, the target directory).

    `source` and `target` are the resolved paths of the directive. Raise a StagingError with the directive, the affected
    path, and the reason.
    """
    with explained(sd, target):
        return performer(sd['action'], source, target).stage(source, target, bool(sd['flags'] & CREATE_PARENTS))


def attempt(sd: Directive, source: str, target: str) -> StagingError | None:
    """Like `perform`, but return the error if the directive is flagged NON_FATAL, and None on success."""
    try:
        perform(sd, source, target)
    except StagingError as error:
        if sd['flags'] & NON_FATAL:
            return error
        raise
    return None


@contextmanager
def explained(sd: Directive, target: str) -> Iterator[None]:
    """Convert OSErrors to StagingErrors."""
    try:
        yield
    except OSError as error:
        at_target = error.errno in _TARGET_ERRORS or error.filename is None
        path = target if at_target else os.fsdecode(error.filename)
        raise StagingError(describe(sd), masked(path), masked(error.strerror or str(error))) from error


def run(uid: str, directives: Iterable[Directive], bases: tuple[str, str], sandboxes: Sandboxes, tracer: Tracer,
        name: str) -> list[str]:
    """Perform directives, and return the absolute targets of those that succeeded.

    `bases` are the sandboxes of relative sources and targets, `name` (`staging_in`, `staging_out`) is the prefix of
    the trace events. Raise `StagingError` for the first directive that fails and is not flagged NON_FATAL.
    """
    targets = []
    for directive in directives:
        tracer.record(f'{name}_start', uid, msg=directive['uid'])
        source = resolve(directive['source'], bases[0], sandboxes)
        target = resolve(directive['target'], bases[1], sandboxes)
        try:
            failed = attempt(directive, source, target)
        except StagingError:
            tracer.record(f'{name}_fail', uid, msg=directive['uid'])
            raise
        if failed:
            tracer.record(f'{name}_fail', uid, msg=directive['uid'])
        else:
            tracer.record(f'{name}_stop', uid, msg=directive['uid'])
            targets.append(target)
    return targets


def is_removable(sandboxes: Sandboxes) -> bool:
    """Return whether a task's sandbox lies in the pilot's sandbox; other directories may hold data of the user."""
    own, pilot = os.path.realpath(sandboxes.task), os.path.realpath(sandboxes.pilot)
    return own != pilot and os.path.commonpath([own, pilot]) == pilot


def remove_sandbox(sandboxes: Sandboxes) -> None:
    """Delete a task's sandbox if it is removable. Files that cannot be deleted cause a warning."""
    if not is_removable(sandboxes):
        return
    try:
        remove(sandboxes.task)
    except FileNotFoundError:   # deleted by the task itself
        return
    except OSError as error:
        logger(LOG).warning('%s could not be removed: %s: %s', sandboxes.task, error.filename, error.strerror)


def check_locations(directives: Iterable[Directive]) -> None:
    """Raise `DescriptionError`, with the directive, for URLs that are invalid in all sandboxes.

    The same applies to URLs of other hosts that the client has to access and cannot, as it lacks a program or package.
    """
    for directive in directives:
        try:
            for end in (directive['source'], directive['target']):
                resolve(end, 'task', _ANYWHERE)
                remote = transport(end)
                if remote and acts_on_client(directive['action']) and (missing := remote.missing()):
                    raise DescriptionError(missing)
        except DescriptionError as error:
            raise DescriptionError(f'staging directive [{describe(directive)}]: {error}') from None
