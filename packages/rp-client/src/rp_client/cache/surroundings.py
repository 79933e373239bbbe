"""The surroundings of tasks that decide about results: environments of pilots, images, masters and workers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import partial
from glob import escape, glob
from typing import Any

from rp_api import states
from rp_api.constants import TASK_EXECUTABLE
from rp_api.description import container
from rp_api.description import task as names
from rp_api.description.environment import BUILT, OWN, normal_form
from rp_api.raptor_link import ANY
from rp_client.cache import distributions, imports
from rp_client.cache.digest import DigestError, digest
from rp_client.cache.files import Content, Seen, joined, look
from rp_client.core.pilot import PilotRecord
from rp_client.core.task import TaskRecord

_OF_WORKERS = (names.EXECUTABLE, names.RAPTOR_CLASS, names.ENVIRONMENT, names.PRE_EXEC, names.PRE_LAUNCH)
"""Attributes of masters and workers that count by their values."""


class Surroundings:
    """The pilots of a task manager, and its RAPTOR masters and workers."""

    def __init__(self, pilots: Iterable[PilotRecord], raptors: Iterable[TaskRecord]) -> None:
        self._pilots = list(pilots)
        self._raptors = list(raptors)

    def of(self, description: Mapping[str, Any], seen: Seen) -> bytes:
        """Return the digest of what surrounds a task.

        Raises:
            DigestError: It cannot be judged here.
            OSError: A file cannot be read.
        """
        raptor = description.get(names.RAPTOR_ID, '')
        parts = [self._environment(description.get(names.NAMED_ENV, ''), seen),
                 image(description.get(names.CONTAINER, {}), seen)]
        if not raptor and description.get(names.MODE, TASK_EXECUTABLE) == TASK_EXECUTABLE:
            return joined(b'surroundings', parts)
        known = [task for task in self._raptors if raptor in (task.uid, task.common.raptor_id, ANY)]
        if not known:
            raise DigestError(f'the master {raptor}, which is not of this task manager')
        return joined(b'surroundings', [*parts, *sorted({self._raptor(task, seen) for task in known})])

    def _raptor(self, task: TaskRecord, seen: Seen) -> bytes:
        """Return the digest of a master or worker: of its class with its files, and of its environment."""
        description = task.sparse()
        arguments = [each for each in description.get(names.ARGUMENTS, ()) if each != task.common.raptor_id]
        environment = description.get(names.NAMED_ENV, OWN)
        parts = [digest([arguments, *(description.get(name) for name in _OF_WORKERS)]),
                 distributions.PYTHON if environment == OWN else self._environment(environment, seen)]
        if file := description.get(names.RAPTOR_FILE):
            parts += _script(file, description, seen)
        return joined(task.common.mode.encode(), parts)

    def _environment(self, name: str, seen: Seen) -> bytes:
        """Return the digest of a named environment, which has to be the same on all pilots."""
        if not name:
            return b''
        if name == OWN:
            return seen.note('the packages of the agent', lambda: distributions.all_of(distributions.sites()))
        live = [pilot for pilot in self._pilots if pilot.state not in states.FINAL]
        found = {seen.note(f'environment {name} of {pilot.uid}', partial(_environment, pilot, name))
                 for pilot in live or self._pilots}
        if len(found) != 1:
            raise DigestError(f'the environment {name!r}, which ' + (
                'differs between the pilots' if found else 'no pilot has yet, so that its packages are not known'))
        return found.pop()


def image(wanted: Mapping[str, Any], seen: Seen) -> bytes:
    """Return the digest of the image of a container: of its content, or the one in its name."""
    name = wanted.get(container.IMAGE, '')
    if not name or '@sha256:' in name:
        return str(name).encode()
    if not os.path.isabs(name):
        raise DigestError(f'the image {name!r}, whose content may change: name it by its digest (NAME@sha256:...) or '
                          'by an absolute path')
    return seen.file(name)


def unlike(pilot: PilotRecord | None, *, python: bool) -> str:
    """Return why the files, or the Python, of a pilot are not those of the application; empty if they are."""
    if pilot is None:
        return 'it is not known where it ran'
    if not pilot.directories.here:
        return f'{pilot.uid} is on another host, whose files the client cannot compare'
    if python and not pilot.directories.same_python:
        return f'{pilot.uid} runs another Python than the application'
    return ''


def _environment(pilot: PilotRecord, name: str) -> Content:
    """Look at a named environment of a pilot."""
    record = os.path.join(pilot.directories.pilot, 'env', f'rp_named_env.{name}.json')
    if pilot.directories.here and os.path.exists(record):
        with open(record, 'rb') as file:
            built = json.load(file)
        spec, path = built['spec'], built['path']
    else:
        described = pilot.description['prepare_env'].get(name)
        if described is None:
            raise DigestError(f'the environment {name!r}, which {pilot.uid} does not have yet')
        spec, path = normal_form(name, described), ''
    if spec['type'] in BUILT and not path:
        raise DigestError(f'the environment {name!r}, whose packages are not known before it is built on {pilot.uid}: '
                          'submit the task after Pilot.prepare_env has returned')
    parts = [digest({key: value for key, value in sorted(spec.items()) if key not in ('keep', 'pack', 'path')}),
             image(spec['container'], Seen())]
    if path:
        parts += _packages(path)
    found = joined(b'environment', parts)
    return Content(found, found)


def _packages(path: str) -> list[bytes]:
    """Return the digests of the Python and the packages of an environment in a directory."""
    places = sorted(glob(os.path.join(escape(path), 'lib', 'python*', 'site-packages')))
    for place in places:
        for origin in glob(os.path.join(escape(place), '*.dist-info', 'direct_url.json')):
            with open(origin, 'rb') as file:
                if json.load(file).get('dir_info', {}).get('editable'):
                    raise DigestError(f'an editable package in the environment {path}')
    others = [os.path.join(path, name) for name in ('pyvenv.cfg', 'conda-meta')]
    python = os.path.realpath(os.path.join(path, 'bin', 'python'))
    return [distributions.all_of(places).digest, *(look(each).digest for each in [*others, python]
                                                   if os.path.exists(each))]


def _script(file: str, description: Mapping[str, Any], seen: Seen) -> list[bytes]:
    """Return the digests of a Python file of a master or worker, with the neighbours that it imports."""
    if not os.path.isabs(file):
        file = next((directive['source'] for directive in description.get(names.INPUT_STAGING, ())
                     if os.path.basename(directive['source']) == os.path.basename(file)), file)
    left, known = [os.path.abspath(file.removeprefix('client://'))], dict[str, bytes]()
    others: set[str] = set()
    while left:
        path = left.pop()
        if not os.path.exists(path):
            raise DigestError(f'the raptor_file {file!r}, which the client cannot read')
        known[path] = seen.file(path)
        for name in imports.imported_by(path, ''):
            beside = os.path.join(os.path.dirname(path), name)
            near = [each for each in (f'{beside}.py', beside) if os.path.exists(each) and each not in known]
            left += near
            others |= set() if near else {name}
    return [*(known[path] for path in sorted(known)), *imports.modules(others, seen, {})]
