"""The attribute `container` of task descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rp_api import constants as c
from rp_api.description.container import container, merged, parts_of
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError


def verified(**attributes: Any) -> TaskDescription:
    description = TaskDescription({'executable': 'prog', **attributes})
    description.verify()
    return description


def test_a_string_is_the_image() -> None:
    assert verified(container='image.sif').container == {'image': 'image.sif'}
    assert verified(container=Path('/image')).container == {'image': '/image'}


def test_no_container_is_the_default() -> None:
    assert verified().container == {}
    assert 'container' not in verified().sparse()
    assert 'container' not in verified(container=None).sparse()


def test_a_complete_container_stays_the_same_object() -> None:
    value = {'image': 'debian', 'tool': 'podman', 'binds': ['/a', '/a:/b', '/a:/b:ro', '/a:ro', '$HOME'], 'gpu': 'rocm'}
    assert container(value) is value


def test_values_are_cast() -> None:
    assert container({'image': 'debian', 'tool': None, 'binds': Path('/a')}) == {'image': 'debian', 'binds': ['/a']}


@pytest.mark.parametrize(('value', 'sentence'), [
    (1, "an image, or a dict with the key 'image', not 1"),
    ('', "image is a path or the name of an image"),
    ('-x', "image is a path or the name of an image"),
    ({'tool': 'podman'}, "a dict with the key 'image', not"),
    ({'image': 'x', 'tools': 'podman'}, "did you mean 'tool'"),
    ({'image': 'x', 'tool': 'docker'}, "one of 'apptainer', 'singularity', 'podman', 'charliecloud' (not 'docker')"),
    ({'image': 'x', 'gpu': 'cuda'}, "gpu is one of '', 'nvidia', 'rocm' (not 'cuda')"),
    ({'image': 'x', 'binds': ['relative']}, "(not 'relative')"),
    ({'image': 'x', 'binds': ['/a:/b:rx']}, "(not '/a:/b:rx')"),
    ({'image': 'x', 'binds': ['/a,b']}, "(not '/a,b')"),
    ({'image': 'x', 'binds': 5}, 'binds is a list of paths (not 5)'),
])
def test_a_wrong_container_is_refused_with_what_is_allowed(value: Any, sentence: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        verified(container=value)
    assert str(caught.value).startswith('TaskDescription.container must be ')
    assert sentence in str(caught.value)


@pytest.mark.parametrize('attributes', [{'mode': c.TASK_FUNCTION, 'function': 'f'}, {'mode': c.TASK_PROC},
                                        {'mode': c.TASK_SHELL, 'command': 'true'}])
def test_tasks_of_workers_run_in_the_container_of_their_worker(attributes: dict[str, Any]) -> None:
    with pytest.raises(DescriptionError, match="run in their worker's container"):
        verified(container='image.sif', raptor_id='master', **attributes)


def test_parts_of_a_bind() -> None:
    assert parts_of('/a') == ('/a', '/a', '')
    assert parts_of('/a:/b') == ('/a', '/b', '')
    assert parts_of('/a:ro') == ('/a', '/a', 'ro')
    assert parts_of('/a:/b:rw') == ('/a', '/b', '')


def test_the_container_of_an_environment_and_of_a_task() -> None:
    of_environment = {'image': 'x', 'tool': 'podman', 'binds': ['/a', '/b']}
    assert merged(of_environment, {}) == of_environment
    assert merged(of_environment, {'image': 'y', 'binds': ['/b', '/c']}) == {
        'image': 'y', 'tool': 'podman', 'binds': ['/a', '/b', '/c']}
