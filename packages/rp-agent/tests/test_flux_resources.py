"""The resource manager FLUX, and which instances of Flux a pilot in one uses."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from executor_support import a_context
from resource_manager_support import MadeUp, allocate

from rp_agent.executor.backends.flux import executor
from rp_agent.executor.backends.flux.executor import EnclosingFlux, FluxLauncher, NestedFlux
from rp_agent.executor.backends.launcher import InstanceLauncher, InstanceNode
from rp_agent.resource_manager.base import Allocation
from rp_agent.resource_manager.granted import Node as Granted
from rp_agent.resource_manager.systems.find import enclosing, hint, platform_of
from rp_agent.resource_manager.systems.flux import SIZE, of_resources
from rp_agent.resource_manager.systems.flux import URI as FACT
from rp_api.errors import PlatformError, ResourceError

URI = 'local:///tmp/flux-x/local-0'
ENVIRON = {'FLUX_URI': URI}


def resources(nodes: str, *groups: dict[str, Any]) -> str:
    """What `flux resource R` prints."""
    return json.dumps({'version': 1, 'execution': {'R_lite': list(groups), 'starttime': 0.0, 'expiration': 0.0,
                                                   'nodelist': [nodes]}})


def group(ranks: str, **children: str) -> dict[str, Any]:
    return {'rank': ranks, 'children': children}


def answers(said: str, size: int) -> dict[str, str]:
    return {'flux resource R --states=up': said, 'flux getattr size': f'{size}\n'}


TWO = answers(resources('n[1-2]', group('0-1', core='0-7', gpu='0-3')), 2)


@pytest.mark.parametrize('name', ['FLUX', 'ALLOCATION'])
def test_nodes_are_those_of_the_instance(name: str) -> None:
    found = allocate(name, ENVIRON, {}, nodes=2, answers=TWO, here=['n2'])
    assert (found.names, found.cores_per_node, found.gpus_per_node) == (('n2', 'n1'), 8, 4)
    assert found.facts == {'flux_uri': URI, 'flux_size': '2'}


def test_cores_are_not_threads() -> None:
    found = allocate('FLUX', ENVIRON, {'system_architecture': {'smt': 2}}, nodes=2, answers=TWO, here=['n1'])
    assert (found.cores_per_node, found.threads_per_core) == (16, 2)


def test_nodes_differ() -> None:
    said = resources('a,b[1-2]', group('0,2', core='0-1'), group('1', core='0-3,6', gpu='0'))
    assert of_resources(said) == [Granted('a', 2, 0), Granted('b1', 5, 1), Granted('b2', 2, 0)]


def test_all_nodes_without_a_size() -> None:
    assert allocate('ALLOCATION', ENVIRON, {}, answers=TWO, here=['n1']).names == ('n1', 'n2')


def test_more_than_there_is() -> None:
    with pytest.raises(ResourceError, match='nodes=3 of the pilot description is more than the 2'):
        allocate('FLUX', ENVIRON, {}, nodes=3, answers=TWO, here=['n1'])


def test_a_job_without_an_instance() -> None:
    with pytest.raises(PlatformError, match=r'job f123 of FLUX has no Flux instance.* flux batch or flux alloc'):
        allocate('FLUX', {**ENVIRON, 'FLUX_JOB_ID': 'f123'}, {}, nodes=1, answers=TWO)


@pytest.mark.parametrize('said', ['', '{}', '{"execution": {"R_lite": [{"rank": "0"}], "nodelist": ["a"]}}',
                                  resources('a', group('0-1', core='0'))])
def test_what_is_not_understood(said: str) -> None:
    with pytest.raises(PlatformError, match='`flux resource R` cannot be parsed'):
        of_resources(said)


def test_outside_of_flux() -> None:
    with pytest.raises(PlatformError, match='the environment variable FLUX_URI is not set'):
        allocate('FLUX', {}, {}, nodes=1)


def test_flux_in_a_job_of_another_batch_system() -> None:
    found = enclosing(MadeUp({**ENVIRON, 'SLURM_JOB_ID': '1'}))
    assert found is not None
    assert found.NAME == 'SLURM'


def test_hint() -> None:
    assert 'of FLUX with 2 nodes, of which this pilot uses 1' in hint(MadeUp(ENVIRON, answers=TWO), 1)


# which instances

def launcher(tmp_path: Any, names: tuple[str, ...], instances: int = 1,
             partition: int | None = None, **facts: str) -> InstanceLauncher:
    """What the executor starts instances with."""
    launchers: Any = SimpleNamespace(setting={'nodes': names, 'facts': facts}, is_here=lambda position: position == 0,
                                     platform={'resource_manager': 'FLUX'})
    return executor._launcher(a_context(tmp_path)._replace(partition=partition), launchers, instances, 1)


FACTS = {'flux_uri': URI, 'flux_size': '2'}


@pytest.mark.parametrize(('names', 'more', 'kind'), [
    (('a', 'b'), FACTS, EnclosingFlux), (('a',), FACTS, NestedFlux),
    (('a', 'b'), {**FACTS, 'instances': 2}, NestedFlux),
    (('a', 'b'), {**FACTS, 'partition': 0}, NestedFlux), (('a', 'b'), {}, FluxLauncher)], ids=str)
def test_an_instance_is_used_whose_nodes_are_those_of_the_pilot(
        tmp_path: Any, names: tuple[str, ...], more: dict[str, Any],
        kind: type[InstanceLauncher]) -> None:
    assert type(launcher(tmp_path, names, **more)) is kind


@pytest.mark.parametrize(('nodes', 'threads', 'options'), [
    ([InstanceNode('a', 8, 2), InstanceNode('b', 8, 2)], 1,
     '--nodes=2 --ntasks=2 --cores-per-task=8 --gpus-per-task=2'),
    ([InstanceNode('a', 8), InstanceNode('b', 8)], 2, '--nodes=2 --ntasks=2 --cores-per-task=4'),
    ([InstanceNode('a', 8), InstanceNode('b', 4)], 1, '--nodes=2 --ntasks=2 --exclusive')], ids=str)
def test_nested_instances_get_what_their_nodes_have(nodes: list[InstanceNode], threads: int, options: str) -> None:
    startup = NestedFlux(URI, threads).startup(0, nodes)
    assert f'{options} --requires=hosts:a,b sh -c ' in ' '.join(startup.argv)
    assert startup.environment == {'FLUX_URI': URI}


@pytest.mark.parametrize(('manager', 'facts', 'elsewhere', 'spawner'), [
    ('ALLOCATION', {FACT: URI, SIZE: '2'}, (1,), 'FLUX'), ('ALLOCATION', {FACT: URI}, (), 'POPEN'),
    ('ALLOCATION', {}, (1,), 'POPEN'), ('FLUX', {FACT: URI}, (1,), 'POPEN')])
def test_the_executor_of_an_allocation(manager: str, facts: dict[str, str], elsewhere: tuple[int, ...],
                                       spawner: str) -> None:
    """Nothing but Flux starts tasks on other nodes of its jobs; a platform of the user's own says how itself."""
    platform = {'resource_manager': manager, 'agent_spawner': 'POPEN', 'agent_scheduler': 'CONTINUOUS'}
    found = platform_of(platform, Allocation(('a', 'b'), 2, 0, 0, 0, facts=facts, elsewhere=elsewhere))
    assert found['agent_spawner'] == spawner
    assert (found['agent_scheduler'] == 'FLUX') == (spawner == 'FLUX')
