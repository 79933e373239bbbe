"""What a pilot description accepts, and what it refuses."""

from __future__ import annotations

import pickle
from typing import Any

import msgpack
import pytest

from rp_api import constants as c
from rp_api.description import pilot as keys
from rp_api.description.pilot import PilotDescription
from rp_api.description.task import TaskDescription
from rp_api.errors import AttributeTypeError, AttributeUnknown, DescriptionError

DEFAULTS: dict[str, Any] = {
    'uid': None, 'resource': None, 'access_schema': None, 'runtime': 10, 'job_name': None, 'sandbox': None, 'nodes': 0,
    'backup_nodes': 0, 'cores': 0, 'gpus': 0, 'memory': 0, 'queue': None, 'project': None, 'app_comm': [],
    'cleanup': False, 'exit_on_error': True, 'fail_if_unschedulable': False, 'requeue': False, 'input_staging': [],
    'output_staging': [], 'prepare_env': {}, 'services': [], 'enable_ep': False, 'reconfig_src': None, 'partitions': 0,
    '_config': {},
}


def verified(**attributes: Any) -> PilotDescription:
    description = PilotDescription({'resource': 'local.exact', 'nodes': 1, **attributes})
    description.verify()
    return description


def test_attributes_and_defaults() -> None:
    assert PilotDescription().as_dict() == DEFAULTS


def test_every_attribute_has_a_constant_and_is_documented() -> None:
    constants = {value: name for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
    for name in DEFAULTS:
        assert constants[name] == name.strip('_').upper()
        assert f'`{name}`' in str(PilotDescription.__doc__)


def test_the_types_of_all_attributes_can_be_looked_up() -> None:
    assert list(PilotDescription._schema) == list(DEFAULTS)
    assert PilotDescription._schema['runtime'] is int


def test_unset_attributes_may_be_none() -> None:
    description = verified(**dict.fromkeys(set(DEFAULTS) - {'resource', 'nodes'}))
    assert description.sparse() == {'resource': 'local.exact', 'nodes': 1}


@pytest.mark.parametrize('size', [{'nodes': 2}, {'nodes': 2, 'backup_nodes': 1}, {'cores': 4}, {'cores': 4, 'gpus': 1},
                                  {'nodes': '2'}, {'nodes': 2, 'cores': 0, 'gpus': None}])
def test_sizes(size: dict[str, Any]) -> None:
    description = PilotDescription({'resource': 'local.exact', **size})
    description.verify()
    assert {name: description[name] for name in size} == {name: int(value or 0) for name, value in size.items()}


@pytest.mark.parametrize(('attributes', 'complaint'), [
    ({'nodes': 1}, 'PilotDescription.resource is not set'),
    ({'nodes': 1, 'resource': ''}, 'PilotDescription.resource is not set'),
    ({'resource': 'a.b'}, 'nodes and cores are both 0'),
    ({'resource': 'a.b', 'gpus': 1}, 'nodes and cores are both 0'),
    ({'resource': 'a.b', 'nodes': 2, 'cores': 8}, 'nodes is 2 and cores is 8'),
    ({'resource': 'a.b', 'nodes': 2, 'gpus': 1}, 'nodes is 2 and gpus is 1'),
    ({'resource': 'a.b', 'cores': 8, 'backup_nodes': 1}, 'backup_nodes is 1, but nodes is not set'),
    ({'resource': 'a.b', 'nodes': -1}, 'nodes is -1, but must be 0 or more'),
    ({'resource': 'a.b', 'cores': -8}, 'cores is -8, but must be 0 or more'),
    ({'resource': 'a.b', 'nodes': 1, 'backup_nodes': -1}, 'backup_nodes is -1'),
    ({'resource': 'a.b', 'cores': 1, 'gpus': -1}, 'gpus is -1'),
    ({'resource': 'a.b', 'nodes': 1, 'runtime': 0}, 'runtime is 0, but must be 1 or more'),
    ({'resource': 'a.b', 'nodes': 1, 'runtime': -5}, 'runtime is -5'),
    ({'resource': 'a.b', 'nodes': 1, 'uid': 'a/b'}, "uid is 'a/b'"),
    ({'resource': 'a.b', 'nodes': 1, 'sandbox': '/a\0b'}, 'sandbox is .* without NUL'),
])
def test_contradictions_are_named(attributes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DescriptionError, match=complaint) as caught:
        PilotDescription(attributes).verify()
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(('name', 'value', 'cast'), [
    ('runtime', '15', 15), ('app_comm', 'a_queue', ['a_queue']), ('exit_on_error', 'no', False),
    ('input_staging', ['a', {'source': 'b'}], ['a', {'source': 'b'}]), ('output_staging', 'a', ['a']),
    ('prepare_env', {'env': {'type': 'venv'}}, {'env': {'type': 'venv'}}), ('_config', {'a': 1}, {'a': 1}),
])
def test_values_are_cast(name: str, value: Any, cast: Any) -> None:
    assert verified(**{name: value})[name] == cast


@pytest.mark.parametrize(('name', 'value'), [('runtime', 'long'), ('memory', -1), ('nodes', []), ('services', 3),
                                             ('prepare_env', {'env': 'venv'}), ('_config', 3), ('queue', ['a'])])
def test_values_of_another_type_are_refused(name: str, value: Any) -> None:
    with pytest.raises(AttributeTypeError, match=f'PilotDescription.{name} must be'):
        verified(**{name: value})


@pytest.mark.parametrize('mode', [None, c.TASK_EXECUTABLE, c.TASK_SERVICE, c.AGENT_SERVICE])
def test_services_are_tasks_of_their_own_mode(mode: str | None) -> None:
    service = TaskDescription({'executable': 'redis', 'mode': mode, 'ranks': '1'})
    for given_service in (service, dict(service), service.sparse()):
        (kept,) = verified(services=[given_service]).services
        assert isinstance(kept, TaskDescription)
        assert kept.sparse() == {'executable': 'redis', 'mode': c.AGENT_SERVICE}
    assert service.mode == mode
    assert verified(services=service).services[0].executable == 'redis'


def test_services_are_verified() -> None:
    with pytest.raises(DescriptionError, match=r'TaskDescription\.executable is not set'):
        verified(services=[TaskDescription()])
    with pytest.raises(DescriptionError, match=r'TaskDescription of mode .agent.service.'):
        verified(services=[{'mode': c.TASK_SHELL, 'command': 'x'}])


def test_plain_forms_hold_no_objects() -> None:
    description = verified(services=[TaskDescription({'executable': 'redis'})])
    assert msgpack.unpackb(msgpack.packb(description.as_dict())) == description.as_dict()
    assert description.sparse()['services'] == [{'executable': 'redis', 'mode': c.AGENT_SERVICE}]
    received = PilotDescription.from_sparse(description.sparse())
    received.verify()
    assert received == description
    assert pickle.loads(pickle.dumps(description)) == description


def test_the_settings_of_the_agent_are_an_attribute() -> None:
    description = PilotDescription()
    description._config['blowup_factor'] = {'Scheduler': 2}
    assert description.sparse() == {'_config': {'blowup_factor': {'Scheduler': 2}}}
    assert not hasattr(description, '_other')


@pytest.mark.parametrize(('name', 'reason'), [
    ('candidate_hosts', 'batch system'), ('output', r'Pilot\.stdout'), ('error', r'Pilot\.stderr'),
    ('layout', 'partitions'),
])
def test_attributes_of_the_past_are_refused_with_a_reason(name: str, reason: str) -> None:
    with pytest.raises(AttributeUnknown, match=f'PilotDescription has no attribute "{name}": .*{reason}'):
        verified(**{name: 'x'})


def test_misspelt_names_are_refused_with_the_right_one() -> None:
    with pytest.raises(KeyError, match="no attribute \"runtme\": did you mean 'runtime'"):
        verified(runtme=3)
