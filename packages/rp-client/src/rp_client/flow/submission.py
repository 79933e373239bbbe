"""Verification and packing of task descriptions in the application's thread, which refuses all that can be refused.

Most descriptions of a submission are equal to the one before except for a few attributes; only these are verified.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rp_api import constants as c
from rp_api.batch import Chunk
from rp_api.description import task as names
from rp_api.description.pilot import PilotDescription
from rp_api.description.task import TaskDescription
from rp_api.description.template import Fields
from rp_api.errors import DescriptionError, PilotError
from rp_api.raptor_defaults import complete
from rp_api.staging.directive import expand
from rp_api.staging.location import acts_on_client
from rp_api.staging.run import check_locations
from rp_api.task_modes import RAPTOR_MODES
from rp_api.wire import codec
from rp_client.common_description import LOOKED_AT, NOTHING, CommonDescription, listed
from rp_client.flow.parameters import Parameters
from rp_client.ids import chosen

DESCRIPTION_MAX_BYTES = 16 << 20
"""Bytes of a task description at most."""

_BY_AGENT = (c.TASK_EXECUTABLE, c.TASK_SERVICE, c.AGENT_SERVICE)

_ALONE = LOOKED_AT | {names.CONTAINER, names.NAMED_ENV, names.SERVICE, names.INFO_PATTERN, names.METHOD}
"""Attributes that require a complete verification if they differ from the description before."""

_NEEDED = (names.EXECUTABLE, names.FUNCTION, names.CODE, names.COMMAND)
_CALL = frozenset({names.FUNCTION, names.ARGS, names.KWARGS})
_SCALARS = frozenset({str, int, float, bool})

Packed = tuple[CommonDescription, bytes]
"""The shared part of a description, and its packed differences."""


class Packing:
    """Verifies and packs the descriptions of one submission.

    `master` is the uid of a RAPTOR master that replaces the `raptor_id` of all descriptions.
    """

    def __init__(self, master: str = '') -> None:
        self._master = master
        self._like: dict[str, Any] | None = None   # attributes of the last completely verified description
        self._common: CommonDescription
        self._has_arguments = False   # whether it has function arguments
        self._function = b''   # that of its packed call
        self._free = ''   # the attribute that needs no verification if it alone differs, has this type and is not empty
        self._free_type: type = object
        self._free_own: Callable[[Any], dict[str, Any]]   # returns the differences that it makes

    def pack(self, description: TaskDescription, uid: str) -> Packed:
        """Return the verified and packed description; raise DescriptionError if it is not valid."""
        like = self._like
        if like is not None and type(description) is TaskDescription and dict.keys(description) == like.keys():
            own = {name: value for name, value in dict.items(description) if value is not like[name]}
            if own and self._master:
                own.pop(names.RAPTOR_ID, None)
            if not own:
                return self._common, NOTHING
            if len(own) == 1 and type(value := own.get(self._free)) is self._free_type and value:
                return self._common, pack_plain(self._free_own(value), uid, len(self._common.packed))
            if description.verify_alone(own) and self._differ_little(own):
                if names.FUNCTION in own or not self._has_arguments:   # else the call was verified before
                    description.verify_call()
                own.pop(names.UID, None)
                if self._function and not _CALL.isdisjoint(own):
                    self._pack_call(own, description)
                return self._common, pack_plain(own, uid, len(self._common.packed)) if own else NOTHING
        return self._anew(description, uid)

    def _differ_little(self, own: dict[str, Any]) -> bool:
        """Return whether the differences from the description before need no complete verification."""
        like = self._like
        assert like is not None
        if names.SERVICES in own and self._common.raptor_id:
            return False
        for name in _ALONE.intersection(own):
            value, other = own[name], like[name]
            if type(value) not in _SCALARS or type(value) is not type(other) or value != other:
                return False
            del own[name]   # an equal value, but another object
        if names.FUNCTION in own and (type(own[names.FUNCTION]) is str) == bool(self._function):
            return False
        return all(own.get(name, True) for name in _NEEDED)

    def _pack_call(self, own: dict[str, Any], description: TaskDescription) -> None:
        """Replace function and arguments among the differences from the description before."""
        from rp_api.description.python_task import pack_call  # few tasks are functions

        packed = pack_call(description, b'' if names.FUNCTION in own else self._function)
        for name in _CALL:
            own.pop(name, None)
        if packed is not None:
            function, own[names.ARGS] = packed
            if function != self._function:
                own[names.FUNCTION] = function

    def _anew(self, description: TaskDescription, uid: str) -> Packed:
        checked = verified(_for_master(description, self._master) if self._master else description, uid)
        sparse = plain(checked)
        if sparse.get(names.CACHE):
            from rp_client.cache.identity import check  # few tasks need it

            check(sparse, uid)
        self._common = CommonDescription(sparse, pack_plain(sparse, uid), time.time())
        self._like = None
        # staging directives differ between tasks in their uids
        staged = sparse.get(names.INPUT_STAGING) or sparse.get(names.OUTPUT_STAGING)
        if self._common.mode not in RAPTOR_MODES and not staged and type(description) is TaskDescription:
            self._like = dict(dict.items(description))
            self._has_arguments = bool(self._like.get(names.ARGS) or self._like.get(names.KWARGS))
            function = sparse.get(names.FUNCTION)
            self._function = function if isinstance(function, bytes) else b''
            self._find_free()
        return self._common, NOTHING

    def _find_free(self) -> None:
        """Find the attribute in which most calls differ from the one before, and how it is packed."""
        like = self._like
        assert like is not None
        self._free = ''
        func = like.get(names.FUNCTION)
        if self._function:
            from rp_api.description.python_task import pack_arguments, pack_task  # few tasks are functions

            if callable(func):
                self._free, self._free_type = names.ARGS, list
                kwargs = like.get(names.KWARGS)
                self._free_own = lambda args: {names.ARGS: pack_arguments(args, kwargs)}
            elif names.ARGS not in like and names.KWARGS not in like:   # a `PythonTask` has them
                self._free, self._free_type = names.FUNCTION, type(func)
                self._free_own = partial(pack_task, self._function)
        elif func and self._has_arguments:
            self._free, self._free_type, self._free_own = names.ARGS, list, lambda args: {names.ARGS: args}
        elif like.get(names.CODE):
            self._free, self._free_type, self._free_own = names.CODE, str, lambda code: {names.CODE: code}


def _for_master(description: TaskDescription, master: str) -> TaskDescription:
    copy = TaskDescription(description)
    copy[names.RAPTOR_ID] = master
    return copy


def verified(description: TaskDescription, uid: str) -> TaskDescription:
    """Return a verified description; for RAPTOR masters and workers, a copy with defaults."""
    checked = description if isinstance(description, TaskDescription) else TaskDescription(description)
    checked.check()
    mode = checked.mode
    if mode in RAPTOR_MODES:
        checked = TaskDescription(checked)
        complete(checked)
    elif mode not in _BY_AGENT and not checked.raptor_id:
        raise DescriptionError(f'TaskDescription.raptor_id of {uid} is not set, but tasks of mode {mode!r} are run by '
                               'RAPTOR workers: set the uid of a RAPTOR master, or "*" for any')
    for name in (names.SERVICES, names.NAMED_ENV):
        if dict.get(checked, name) and mode not in (*_BY_AGENT, *RAPTOR_MODES):
            raise DescriptionError(f'TaskDescription.{name} of {uid} is {checked[name]!r}, but tasks of mode {mode!r} '
                                   f'run in RAPTOR workers: set {name} of their worker or master')
    return checked


def pack_sweep(description: TaskDescription, parameters: Parameters, uid: str) -> tuple[CommonDescription, list[Chunk]]:
    """Return the common description of a sweep with this uid, and its chunks.

    Raises DescriptionError if the description is not valid, or the parameters do not fit.
    """
    description, = listed([description], 'task')
    for name, allowed in ((names.UID, ''), (names.RAPTOR_ID, ''), (names.MODE, c.TASK_EXECUTABLE)):
        value = chosen(dict.get(description, name))
        if value and value != allowed:
            raise DescriptionError(f'TaskDescription.{name} of a sweep is {value!r}: it must be '
                                   f'{allowed!r}; submit_tasks takes other tasks' if allowed else
                                   f'TaskDescription.{name} of a sweep is {value!r}: leave it unset')
    fields = Fields(parameters.names)
    common, varying = fields.split(plain(verified(TaskDescription(description), uid)))
    chunks: list[Chunk] = []
    done = 0
    for count, columns in parameters.chunks():
        for position, form, attribute in fields.formats:
            _check_format(columns[position] if position < len(columns) else [done], form, attribute)
        chunks.append(Chunk(uid, done, count, varying, columns, parameters.labels))
        done += count
    if done > 1 and isinstance(common.get(names.CACHE), str):
        raise DescriptionError(f'TaskDescription.cache of a sweep is {common[names.CACHE]!r}, but each row has a '
                               'result of its own: give it True, or a key with placeholders')
    first = plain(verified(TaskDescription.from_sparse({**common, **chunks[0].own_of(0)}), uid))
    return CommonDescription(first, pack_plain(common, uid), time.time()), chunks


def _check_format(column: list[Any], form: str, attribute: str) -> None:
    for value in column:
        try:
            format(value, form)
        except (ValueError, OverflowError) as error:
            raise DescriptionError(f'TaskDescription.{attribute} has the format {form!r}, which the parameter '
                                   f'{value!r:.100} does not have: {error}') from None


def agent_services(pilot: PilotDescription) -> list[dict[str, Any]]:
    """Return the services of a pilot as the agent gets them: plain data, each with a uid.

    Raises:
        DescriptionError: A service is not valid, or two have the same uid.
    """
    found = [_agent_service(pilot.uid, number, service) for number, service in enumerate(pilot.services)]
    uids = [service['uid'] for service in found]
    for uid in uids:
        if uids.count(uid) > 1:
            raise DescriptionError(f'PilotDescription.services has {uids.count(uid)} services with the uid {uid!r}')
    return found


def _agent_service(pilot: str, number: int, description: TaskDescription) -> dict[str, Any]:
    """Return a service of a pilot as plain data; raise DescriptionError if it is not valid."""
    uid = description.uid or f'{pilot}.service.{number:04d}'
    sparse = plain(verified(description, uid))
    if sparse.get(names.AFTER):
        raise DescriptionError(f'TaskDescription.after of {uid} is {sparse[names.AFTER]!r}, but the services of a '
                               'pilot start with it: submit the service to a task manager, or leave `after` unset')
    pack_plain(sparse, uid)
    for directive in [*sparse.get(names.INPUT_STAGING, ()), *sparse.get(names.OUTPUT_STAGING, ())]:
        if acts_on_client(directive['action']):
            raise DescriptionError(f'{uid} stages {directive["source"]!r} by the client, but the agent runs this '
                                   'service: use PilotDescription.input_staging or Pilot.stage_in')
    return {**sparse, 'uid': uid}


def plain(description: TaskDescription) -> dict[str, Any]:
    """Return the attributes of a verified description as they are sent: directives as dicts, without uid.

    A function of the application and its arguments are packed, see `rp_api.description.python_task`.
    """
    sparse = description.sparse()
    if type(sparse.get(names.FUNCTION, '')) is not str:
        from rp_api.description.python_task import pack_call  # few tasks are functions

        packed = pack_call(sparse)
        if packed is not None:
            sparse[names.FUNCTION], sparse[names.ARGS] = packed
            sparse.pop(names.KWARGS, None)
    for name in (names.INPUT_STAGING, names.OUTPUT_STAGING):
        if sparse.get(name):
            sparse[name] = expand(sparse[name])
            check_locations(sparse[name])
    sparse.pop(names.UID, None)
    return sparse


def pack_plain(sparse: Mapping[str, Any], uid: str, others: int = 0) -> bytes:
    """Return a packed description, or a part of one whose other parts have `others` bytes.

    Raises DescriptionError if it is not plain data, or too large.
    """
    try:
        packed = codec.pack(sparse)
    except (TypeError, ValueError, OverflowError, PilotError) as error:
        raise DescriptionError(f'the description of {uid} is not plain data: {error}') from None
    if len(packed) + others > DESCRIPTION_MAX_BYTES:
        raise DescriptionError(f'the description of {uid} has {len(packed) + others} bytes, at most '
                               f'{DESCRIPTION_MAX_BYTES} are allowed: put large data into files and use input_staging')
    return packed
