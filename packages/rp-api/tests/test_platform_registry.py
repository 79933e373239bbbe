"""Platform definitions that an application adds while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rp_api.errors import AttributeTypeError, DescriptionError, PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_api.platforms.load import get_platform
from rp_api.platforms.registry import PlatformRegistry

MINIMAL: dict[str, Any] = {'resource_manager': 'FORK', 'launch_methods': {'order': ['FORK'], 'FORK': {}},
                           'schemas': {'near': {'job_manager_endpoint': 'fork://localhost/'},
                                       'far': {'job_manager_endpoint': 'ssh://far/'}}}


@pytest.fixture
def registry() -> PlatformRegistry:
    return PlatformRegistry()


def test_a_changed_definition(registry: PlatformRegistry) -> None:
    config = registry.get('local.exact')
    assert config == get_platform('local.exact')
    config.cores_per_node = 3
    config.schemas['local'].job_manager_endpoint = 'fork://other/'
    assert registry.get('local.exact') == get_platform('local.exact'), 'not added yet'
    registry.add(config)
    found = registry.get('local.exact')
    assert (found, found.cores_per_node) == (config, 3)
    assert registry.get('local.exact', 'local').job_manager_endpoint == 'fork://other/'
    assert registry.configs()['local']['exact'].cores_per_node == 3
    assert get_platform('local.exact').cores_per_node == 0


def test_definitions_are_copies(registry: PlatformRegistry) -> None:
    config = ResourceConfig('my.machine', MINIMAL)
    registry.add(config)
    config.schemas['near'].job_manager_endpoint = 'fork://changed/'
    config.launch_methods['order'].append('SSH')
    registry.get('my.machine').schemas.clear()
    found = registry.get('my.machine')
    assert found.launch_methods['order'] == ['FORK']
    assert found.job_manager_endpoint == 'fork://localhost/'


def test_new_labels(registry: PlatformRegistry) -> None:
    registry.add(MINIMAL | {'label': 'my.machine'})
    registry.add(ResourceConfig(MINIMAL, label='plain'))
    registry.add(ResourceConfig('my.old', MINIMAL | {'retired': True}))
    retired = registry.get('local.dragon')
    retired.retired = True
    registry.add(retired)
    labels = registry.labels()
    assert labels == sorted(labels)
    assert {'my.machine', 'plain', 'local.exact'}.issubset(labels)
    assert {'my.old', 'local.dragon'}.isdisjoint(labels)
    configs = registry.configs()
    assert (configs['my']['machine'].label, configs['']['plain'].label) == ('my.machine', 'plain')


def test_endpoints(registry: PlatformRegistry) -> None:
    """Those at the top level are for pilots that name no access schema."""
    registry.add(ResourceConfig('a.a', MINIMAL))
    assert registry.get('a.a').job_manager_endpoint == 'fork://localhost/'
    far = registry.get('a.a', 'far')
    registry.add(far)
    assert registry.get('a.a').job_manager_endpoint == 'ssh://far/'
    assert registry.get('a.a', 'near').job_manager_endpoint == 'fork://localhost/'
    far.job_manager_endpoint = 'slurm://login/'
    registry.add(far)
    assert registry.get('a.a').job_manager_endpoint == 'slurm://login/'
    with pytest.raises(PlatformError, match=r"'a\.a' has no access schema 'else', only: near, far"):
        registry.get('a.a', 'else')


def test_a_file(registry: PlatformRegistry, tmp_path: Path) -> None:
    path = tmp_path / 'resource_mine.json'
    path.write_text('# two machines\n' + json.dumps({'one': MINIMAL, 'two': MINIMAL | {'cores_per_node': 4}}))
    registry.add(path)
    assert (registry.get('mine.one').cores_per_node, registry.get('mine.two').cores_per_node) == (0, 4)
    path.write_text(json.dumps({'one': MINIMAL | {'cores_per_node': 7}, 'two': MINIMAL | {'cores': 4}}))
    with pytest.raises(DescriptionError, match=rf"{path}: mine.two: ResourceConfig has no field 'cores'"):
        registry.add(str(path))
    assert registry.get('mine.one').cores_per_node == 0, 'none of the file is added'
    with pytest.raises(PlatformError, match='No such file'):
        registry.add(str(tmp_path / 'none.json'))


@pytest.mark.parametrize(('values', 'words'), [
    ({'label': None}, 'ResourceConfig.label is not set'),
    ({'resource_manager': ''}, 'x.y: resource_manager is required'),
    ({'launch_methods': {}}, "x.y: launch_methods must have a list of names as 'order'"),
    ({'cores_per_node': -1}, 'x.y: ResourceConfig.cores_per_node must be an integer that is not negative, not -1'),
    ({'cores': 1}, "x.y: ResourceConfig has no field 'cores'"),
    ({'virtenv_mode': 'x'}, 'x.y: virtenv_mode must be one of'),
    ({'default_schema': 'x'}, 'x.y: default_schema must be one of near, far'),
    ({'system_architecture': {'smt': 0}}, r'x.y: system_architecture\.smt must be')])
def test_invalid_definitions_name_the_field(registry: PlatformRegistry, values: dict[str, Any], words: str) -> None:
    with pytest.raises(DescriptionError, match=words):
        registry.add({'label': 'x.y'} | MINIMAL | values)
    assert 'x.y' not in registry.labels()


@pytest.mark.parametrize('config', [3, None, ['local.exact']])
def test_what_is_no_definition(registry: PlatformRegistry, config: Any) -> None:
    with pytest.raises(AttributeTypeError, match='must be a ResourceConfig or a dict'):
        registry.add(config)


def test_labels_of_resource_configs() -> None:
    assert ResourceConfig('a.b').label == ResourceConfig(label='a.b').label == ResourceConfig({'label': 'a.b'}).label
    assert ResourceConfig('a.b', {'label': 'c.d', 'cores_per_node': 2}) == ResourceConfig(label='a.b', cores_per_node=2)
    with pytest.raises(AttributeTypeError, match='takes a label before other values'):
        ResourceConfig({'label': 'a.b'}, {})
