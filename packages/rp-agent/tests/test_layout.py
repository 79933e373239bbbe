"""Where components live: what an agent's configuration may say, and the sentences for what it may not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_agent.components.layout import heartbeat, read, reserved_nodes
from rp_agent.components.names import (
    ANYWHERE,
    COMPONENTS,
    EXECUTING,
    INLINE,
    SCHEDULING,
    STAGING_INPUT,
    STAGING_OUTPUT,
)
from rp_api.errors import DescriptionError


def places(settings: dict[str, Any], component: str) -> dict[str, str]:
    """The hosts of a component's instances, by uid."""
    return {instance.uid: instance.host for instance in read(settings).of(component)}


def test_default_is_one_of_each_in_the_agent() -> None:
    assert {each.component: (each.uid, each.host) for each in read({}).instances} == {
        component: (f'{component}.0000', INLINE) for component in COMPONENTS}
    assert read({}).hosts() == {}


def test_several_inline() -> None:
    settings = {'components': {EXECUTING: {'count': 3}}}
    assert places(settings, EXECUTING) == {f'agent_executing.000{number}': INLINE for number in range(3)}


def test_own_processes() -> None:
    settings = {'components': {EXECUTING: {'count': 2, 'target': 'process'}, STAGING_INPUT: {'target': 'process'}}}
    assert places(settings, EXECUTING) == {uid: uid for uid in ('agent_executing.0000', 'agent_executing.0001')}
    assert list(read(settings).hosts()) == ['agent_staging_input.0000', 'agent_executing.0000', 'agent_executing.0001']


def test_sub_agents() -> None:
    settings = {'agents': {'agent_1': {'target': 'local', 'components': {EXECUTING: {'count': 2}, STAGING_OUTPUT: {}}},
                           'agent_2': {'components': {EXECUTING: {}}}}}
    assert places(settings, EXECUTING) == {
        'agent_executing.0000': 'agent_1', 'agent_executing.0001': 'agent_1', 'agent_executing.0002': 'agent_2'}
    assert places(settings, STAGING_OUTPUT) == {'agent_staging_output.0000': 'agent_1'}
    assert places(settings, STAGING_INPUT) == {'agent_staging_input.0000': INLINE}
    assert {name: len(held) for name, held in read(settings).hosts().items()} == {'agent_1': 3, 'agent_2': 1}


def test_here_and_there() -> None:
    """What is mentioned for the agent itself is there, too; and a count of 0 is one if others have some."""
    agents: dict[str, Any] = {'agent_1': {'components': {EXECUTING: {}}}}
    assert places({'components': {EXECUTING: {}}, 'agents': agents}, EXECUTING) == {
        'agent_executing.0000': INLINE, 'agent_executing.0001': 'agent_1'}
    assert list(places({'components': {EXECUTING: {'count': 0}}, 'agents': agents}, EXECUTING).values()) == ['agent_1']


def test_number_of_workers() -> None:
    settings = {'number_of_workers': {'StageinWorker': 2, 'ExecWorker': 3, 'StageoutWorker': 1, 'UpdateWorker': 1}}
    assert Counter(each.component for each in read(settings).instances) == {
        STAGING_INPUT: 2, SCHEDULING: 1, EXECUTING: 3, STAGING_OUTPUT: 1}


def of_executing(**options: Any) -> dict[str, Any]:
    return {'components': {EXECUTING: options}}


def in_agent(**components: Any) -> dict[str, Any]:
    return {'agents': {'agent_1': {'components': components}}}


@pytest.mark.parametrize(('settings', 'words'), [
    ({'compnents': {}}, ['compnents is not known', 'components, agents, target, number_of_workers, heartbeat']),
    ({'components': []}, ['components is []', 'a dict']),
    ({'components': {'agent_thinking': {}}}, ["components is 'agent_thinking'", 'agent_executing']),
    ({'components': {EXECUTING: 3}}, ['components.agent_executing is 3', 'a dict']),
    (of_executing(number=3), ['components.agent_executing.number is not known', 'count, target']),
    (of_executing(count=0), ['components.agent_executing.count is 0', 'at least 1']),
    (of_executing(count=-1), ['components.agent_executing.count is -1', 'from 0 to 1024']),
    (of_executing(count=1025), ['count is 1025', 'from 0 to 1024']),
    (of_executing(count='2'), ["count is '2'", 'a whole number']),
    (of_executing(count=True), ['count is True', 'a whole number']),
    (of_executing(count=1.0), ['count is 1.0', 'a whole number']),
    (of_executing(target='host'), ["components.agent_executing.target is 'host'", "'inline'", "'process'", "'node'"]),
    (of_executing(target='node', count=2), ['components.agent_executing.count is 2', "1 with the target 'node'"]),
    ({'components': {STAGING_INPUT: {'target': 'node'}}}, ["agent_staging_input.target is 'node'", "'process'"]),
    ({'components': {SCHEDULING: {'count': 2}}}, ['components.agent_scheduling', 'one inline instance']),
    ({'components': {SCHEDULING: {'target': 'process'}}}, ['components.agent_scheduling', 'one inline instance']),
    ({'target': 'login'}, ["target is 'login'", "'local'", "'node'"]),
    ({'agents': 2}, ['agents is 2', 'a dict']),
    ({'agents': {'agent_1': {}}}, ['agents.agent_1.components is {}', 'at least one']),
    ({'agents': {'agent_1': {'mode': 'x'}}}, ['agents.agent_1.mode is not known', 'target, components']),
    ({'agents': {'agent_1': {'target': 'nodes', 'components': {EXECUTING: {}}}}}, [
        "agents.agent_1.target is 'nodes'", "'local'", "'node'"]),
    ({'agents': {'agent_n.0001': {'components': {EXECUTING: {}}}}}, ["agents is 'agent_n.0001'", 'unique names']),
    (in_agent(agent_scheduling={}), ['agents.agent_1.components has agent_scheduling', 'runs in Agent_0']),
    (in_agent(agent_executing={'count': 0}), ['agents.agent_1.components.agent_executing.count is 0', 'from 1']),
    (in_agent(agent_executing={'target': 'process'}), ['agent_executing.target is not known', 'allowed are: count']),
    (in_agent(exec={}), ["agents.agent_1.components is 'exec'"]),
    ({'agents': {'../x': {'components': {EXECUTING: {}}}}}, ["agents is '../x'", 'letters']),
    ({'agents': {'agent_0': {'components': {EXECUTING: {}}}}}, ["agents is 'agent_0'", 'unique names']),
    ({'agents': {'agent_executing.0000': {'components': {EXECUTING: {}}}}}, ["agents is 'agent_executing.0000'"]),
    ({'number_of_workers': {'ExecWorkers': 2}}, ['number_of_workers.ExecWorkers is not known', 'ExecWorker']),
    ({'number_of_workers': {'ExecWorker': 0}}, ['number_of_workers.ExecWorker is 0', 'from 1']),
    ({'number_of_workers': {'UpdateWorker': 2}}, ['number_of_workers.UpdateWorker is 2', 'allowed: 1']),
    ({'number_of_workers': {'ExecWorker': 2}} | of_executing(count=2), ['agent_executing is set twice']),
])
def test_refused(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(DescriptionError) as caught:
        read(settings, nodes=2, elsewhere=[1])
    sentence = str(caught.value)
    assert sentence.startswith('agent configuration: ')
    assert [word for word in words if word not in sentence] == []


counts = st.integers(0, 3)
components = st.dictionaries(st.sampled_from([STAGING_INPUT, EXECUTING, STAGING_OUTPUT]),
                             st.fixed_dictionaries({'count': counts}))


@given(st.fixed_dictionaries({}, optional={
    'components': components, 'agents': st.dictionaries(st.sampled_from(['a', 'b', 'c']),
                                                        st.fixed_dictionaries({'components': components}))}))
def test_laws(settings: dict[str, Any]) -> None:
    """Every layout has all components, uids are numbered and unique, and all numbers that were asked for are kept."""
    try:
        plan = read(settings)
    except DescriptionError:
        return
    assert {instance.component for instance in plan.instances} == set(COMPONENTS)
    for component in COMPONENTS:
        assert [each.uid for each in plan.of(component)] == [
            f'{component}.{number:04d}' for number in range(len(plan.of(component)))]
    for name, options in settings.get('agents', {}).items():
        hosted = Counter(each.component for each in plan.hosts()[name])
        assert hosted == {key: value['count'] for key, value in options['components'].items()}
    for component, options in settings.get('components', {}).items():
        assert [each.host for each in plan.of(component)].count(INLINE) == options['count']
    assert SCHEDULING not in {each.component for held in plan.hosts().values() for each in held}


def test_every_other_host_has_an_executor() -> None:
    """Those are beside what lives on the agent's own machine, which also starts what is spread over several nodes."""
    found = read({}, nodes=4, elsewhere=(1, 3))
    assert [tuple(each) for each in found.of(EXECUTING)] == [
        (EXECUTING, 'agent_executing.0000', INLINE, ANYWHERE),
        (EXECUTING, 'agent_executing.0001', 'agent_n.0001', 1), (EXECUTING, 'agent_executing.0002', 'agent_n.0003', 3)]
    assert [each.position for each in found.on_nodes()] == [1, 3]
    assert found.hosts() == {}


def test_an_executor_on_each_node_if_that_is_asked_for() -> None:
    found = read(of_executing(target='node'), nodes=3)
    assert [(each.host, each.node) for each in found.of(EXECUTING)] == [
        (INLINE, ANYWHERE), ('agent_n.0000', 0), ('agent_n.0001', 1), ('agent_n.0002', 2)]


ON_RESERVED: dict[str, Any] = {'agents': {
    'agent_1': {'target': 'node', 'components': {STAGING_INPUT: {'count': 2}, STAGING_OUTPUT: {}}},
    'agent_2': {'components': {STAGING_OUTPUT: {}}},
    'agent_3': {'target': 'node', 'components': {EXECUTING: {}}}}}


def test_sub_agents_on_nodes_of_their_own() -> None:
    """An executor there starts nothing on the agent's host, which therefore has another one."""
    found = read(ON_RESERVED, nodes=2, elsewhere=(1,))
    assert [tuple(each) for each in found.of(EXECUTING)] == [
        (EXECUTING, 'agent_executing.0000', 'agent_3', ANYWHERE),
        (EXECUTING, 'agent_executing.0001', 'agent_n.0000', 0), (EXECUTING, 'agent_executing.0002', 'agent_n.0001', 1)]
    assert [(each.name, each.position, [one.uid for one in each.instances]) for each in found.on_nodes()] == [
        ('agent_n.0000', 0, ['agent_executing.0001']), ('agent_n.0001', 1, ['agent_executing.0002']),
        ('agent_1', 2, ['agent_staging_input.0000', 'agent_staging_input.0001', 'agent_staging_output.0000']),
        ('agent_3', 3, ['agent_executing.0000'])]
    assert list(found.hosts()) == ['agent_2']


def test_reserved_nodes() -> None:
    assert reserved_nodes({}, 1) == 0
    assert reserved_nodes(ON_RESERVED, 3) == 2


@pytest.mark.parametrize('nodes', [1, 2])
def test_a_node_is_left_for_tasks(nodes: int) -> None:
    with pytest.raises(DescriptionError, match=(
            fr"^agent configuration: agents has 2 with the target 'node' \(agent_1, agent_3\), allowed: at most "
            fr'{nodes - 1} in a pilot with {nodes} node\(s\), as tasks need one, too$')):
        reserved_nodes(ON_RESERVED, nodes)


def test_heartbeat() -> None:
    assert heartbeat({}) == (10.0, 60.0)
    assert heartbeat({'heartbeat': {'interval': 1, 'timeout': 2.5}}) == (1, 2.5)


@pytest.mark.parametrize(('values', 'words'), [
    (3, ['heartbeat is 3', 'a dict']),
    ({'delay': 3}, ['heartbeat.delay is not known', 'interval, timeout']),
    ({'interval': '1'}, ["heartbeat.interval is '1'", 'a number of seconds']),
    ({'interval': 0}, ['heartbeat.interval is 0', 'above 0']),
    ({'interval': 10, 'timeout': 15}, ['heartbeat.timeout is 15', 'at least twice the interval, 10'])])
def test_heartbeats_that_are_refused(values: Any, words: list[str]) -> None:
    with pytest.raises(DescriptionError) as caught:
        heartbeat({'heartbeat': values})
    assert [word for word in words if word not in str(caught.value)] == []
