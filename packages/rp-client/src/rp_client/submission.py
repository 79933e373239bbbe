"""What submission does with a description at the call: everything that can be refused is refused here."""

from __future__ import annotations

from typing import Any

from rp_api import constants as c
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError, PilotError
from rp_api.mesh import codec
from rp_api.raptor_defaults import NAMED_ENV, complete
from rp_api.staging.directive import expand
from rp_api.staging.run import check_locations

LARGEST = 16 << 20
"""Bytes of the largest description of a task."""

_RAPTOR = (c.RAPTOR_MASTER, c.RAPTOR_WORKER)
_SERVICES = (c.TASK_SERVICE, c.AGENT_SERVICE)


def verified(description: TaskDescription, uid: str) -> TaskDescription:
    """A copy of the description of a task that can be run, completed if it is one of RAPTOR's."""
    copy = description if isinstance(description, TaskDescription) else TaskDescription(description)
    copy.verify()
    mode = copy.mode
    if mode in _SERVICES:
        raise DescriptionError(f'TaskDescription.mode of {uid} is {mode!r}, but services are not supported')
    if mode in _RAPTOR:
        copy = TaskDescription(copy)
        complete(copy)
    elif mode != c.TASK_EXECUTABLE and not copy.raptor_id:
        raise DescriptionError(f'TaskDescription.raptor_id of {uid} is not set, but tasks of mode {mode!r} are run by '
                               'RAPTOR workers: set the uid of a RAPTOR master, or "*" for any')
    for name in ('named_env', 'services'):
        if copy.get(name) and not (mode in _RAPTOR and copy[name] == NAMED_ENV):
            raise DescriptionError(f'TaskDescription.{name} of {uid} is {copy[name]!r}, but is not supported: '
                                   'leave it unset')
    return copy


def pack(description: TaskDescription, uid: str) -> bytes:
    """A verified description, ready to be sent."""
    sparse = description.sparse()
    for name in ('input_staging', 'output_staging'):
        if sparse.get(name):
            sparse[name] = expand(sparse[name])
            check_locations(sparse[name])
    sparse.pop('uid', None)
    return pack_plain(sparse, uid)


def pack_plain(sparse: dict[str, Any], uid: str) -> bytes:
    """A description as plain data, ready to be sent; DescriptionError if it is no plain data, or too large."""
    try:
        packed = codec.pack(sparse)
    except (TypeError, ValueError, OverflowError, PilotError) as error:
        raise DescriptionError(f'the description of {uid} is not plain data: {error}') from None
    if len(packed) > LARGEST:
        raise DescriptionError(f'the description of {uid} has {len(packed)} bytes, at most {LARGEST} are allowed: '
                               'put large data into files and use input_staging')
    return packed
