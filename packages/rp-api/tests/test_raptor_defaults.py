"""What descriptions of masters and workers need not say."""

from __future__ import annotations

import pytest

from rp_api import constants as c
from rp_api.description.task import TaskDescription
from rp_api.errors import DescriptionError
from rp_api.raptor_defaults import complete


def completed(**values: object) -> TaskDescription:
    description = TaskDescription(values)
    complete(description)
    description.verify()
    return description


def test_master() -> None:
    found = completed(mode=c.RAPTOR_MASTER)
    assert (found.executable, found.arguments) == ('radical-pilot-raptor-master', ['', 'Master'])
    assert (found.environment, found.named_env) == ({'PYTHONUNBUFFERED': '1'}, 'rp')
    assert completed(mode=c.RAPTOR_MASTER, raptor_file='f', raptor_class='C').arguments == ['f', 'C']


def test_worker() -> None:
    found = completed(mode=c.RAPTOR_WORKER, raptor_id='raptor.0000', raptor_class='C')
    assert (found.executable, found.arguments) == ('radical-pilot-raptor-worker', ['', 'C', 'raptor.0000'])
    assert completed(mode=c.RAPTOR_WORKER, raptor_id='r').arguments == ['', 'DefaultWorker', 'r']


def test_what_is_set_stays() -> None:
    found = completed(mode=c.RAPTOR_WORKER, raptor_id='r', executable='./mine.py', environment={'PYTHONUNBUFFERED': ''})
    assert (found.executable, found.arguments, found.environment) == ('./mine.py', ['r'], {'PYTHONUNBUFFERED': ''})
    own = completed(mode=c.RAPTOR_MASTER, executable='./mine.py', raptor_class='C')
    assert own.arguments == []
    assert completed(mode=c.RAPTOR_MASTER, arguments=['a', 'B']).arguments == ['a', 'B']


@pytest.mark.parametrize('raptor_id', ['', '*'])
def test_worker_needs_its_master(raptor_id: str) -> None:
    with pytest.raises(DescriptionError, match='a worker has one master'):
        completed(mode=c.RAPTOR_WORKER, raptor_id=raptor_id)


def test_other_tasks_stay_as_they_are() -> None:
    assert completed(executable='x') == TaskDescription({'executable': 'x', 'use_mpi': False})
