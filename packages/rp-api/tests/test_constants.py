"""The values of the constants, which applications and traces hold literally."""

from __future__ import annotations

from collections import Counter

import pytest

from rp_api import constants


def names(ending: str) -> list[str]:
    return [name for name in vars(constants) if name.endswith(ending)]


@pytest.mark.parametrize(('name', 'value'), [
    ('TASK_EXECUTABLE', 'task.executable'), ('TASK_SERVICE', 'task.service'), ('TASK_FUNCTION', 'task.function'),
    ('TASK_METHOD', 'task.method'), ('TASK_EVAL', 'task.eval'), ('TASK_EXEC', 'task.exec'),
    ('TASK_PROC', 'task.proc'), ('TASK_SHELL', 'task.shell'), ('RAPTOR_MASTER', 'raptor.master'),
    ('RAPTOR_WORKER', 'raptor.worker'), ('AGENT_SERVICE', 'agent.service'),
    ('COPY', 'Copy'), ('LINK', 'Link'), ('MOVE', 'Move'), ('TRANSFER', 'Transfer'), ('TARBALL', 'Tarball'),
    ('DOWNLOAD', 'Download'), ('RECURSIVE', 1), ('CREATE_PARENTS', 2), ('NON_FATAL', 4),
    ('DEFAULT_ACTION', 'Transfer'), ('DEFAULT_FLAGS', 2), ('DEFAULT_PRIORITY', 0),
    ('SCHEDULER_ROUND_ROBIN', 'round_robin'), ('SCHEDULER_BACKFILLING', 'backfilling'),
    ('SCHEDULER_DEFAULT', 'round_robin'), ('TMGR_METRICS', ['TASK_STATE', 'WAIT_QUEUE_SIZE']),
    ('PMGR_METRICS', ['PILOT_STATE']), ('FREE', 0.0), ('BUSY', 1.0), ('DOWN', None), ('POSIX', 'POSIX'),
    ('MPI', 'MPI'), ('OpenMP', 'OpenMP'), ('CUDA', 'CUDA'), ('FUNC', 'FUNC'), ('SERIAL', 'Serial'), ('GPU', 'GPU'),
    ('GPU_MPI', 'GPU_MPI'), ('GPU_OpenMP', 'GPU_OpenMP'), ('MASTER', 'master'), ('WORKER', 'worker'),
])
def test_a_constant_has_the_documented_value(name: str, value: object) -> None:
    assert getattr(constants, name) == value


def test_short_names_are_the_same_objects() -> None:
    assert constants.TASK_FUNC is constants.TASK_FUNCTION
    assert constants.TASK_METH is constants.TASK_METHOD


@pytest.mark.parametrize(('ending', 'count'), [('_QUEUE', 13), ('_PUBSUB', 12)])
def test_channels_are_called_like_their_constants(ending: str, count: int) -> None:
    assert len(names(ending)) == count
    assert all(getattr(constants, name) == name.lower() for name in names(ending))


def test_components_are_called_like_their_constants() -> None:
    components = names('_COMPONENT')
    assert len(components) == 8
    assert all(f'{getattr(constants, name)}_component' == name.lower() for name in components)


def test_modes_and_actions_are_listed_once_each() -> None:
    modes = {value for name, value in vars(constants).items() if name.startswith(('TASK_', 'RAPTOR_', 'AGENT_SERVICE'))
             and isinstance(value, str) and '.' in value}
    assert Counter(constants.TASK_MODES) == Counter(modes)
    assert len(set(constants.STAGING_ACTIONS)) == 6


def test_flags_are_separate_bits() -> None:
    assert constants.RECURSIVE | constants.CREATE_PARENTS | constants.NON_FATAL == 7
