"""The registry of service instances."""

from __future__ import annotations

import pytest

from rp_agent.services.registry import Registry, ServiceInstance, variable


def registry(*uids: str) -> Registry:
    made = Registry()
    for uid in uids:
        made.put(ServiceInstance(uid, 'llm', 'n1', 80, f'at {uid}'))
    return made


def test_users_get_the_instances_in_turn() -> None:
    made = registry('a', 'b', 'c')
    assert [made.info('llm') for _ in range(4)] == ['at a', 'at b', 'at c', 'at a']


def test_users_get_healthy_instances_only() -> None:
    made = registry('a', 'b', 'c')
    made.withdraw('b')
    assert [made.info('llm') for _ in range(3)] == ['at a', 'at c', 'at a']
    assert [each.uid for each in made.healthy('llm')] == ['a', 'c']
    assert [each.uid for each in made.instances('llm')] == ['a', 'b', 'c']


def test_users_keep_what_they_know_while_it_is_right() -> None:
    made = registry('a', 'b')
    assert [made.info('llm', 'at b'), made.info('llm', 'at a')] == ['at b', 'at a']
    made.withdraw('b')
    assert made.info('llm', 'at b') == 'at a'


def test_the_turn_goes_on_when_the_last_instance_is_gone() -> None:
    made = registry('a', 'b', 'c')
    assert [made.info('llm'), made.info('llm')] == ['at a', 'at b']
    made.withdraw('b')
    assert made.info('llm') == 'at c'
    made.remove('c')
    assert made.info('llm') == 'at a'


def test_an_instance_that_comes_back_has_its_place_and_new_information() -> None:
    made = registry('a', 'b')
    made.withdraw('a')
    made.put(ServiceInstance('a', 'llm', 'n2', 81, 'moved'))
    assert [made.info('llm') for _ in range(2)] == ['moved', 'at b']
    assert made.instance('a') == ServiceInstance('a', 'llm', 'n2', 81, 'moved', healthy=True)


@pytest.mark.parametrize('end', ['withdraw', 'remove'])
def test_without_a_healthy_instance_there_is_no_information(end: str) -> None:
    made = registry('a')
    made.set_endpoint('llm', 'http://router')
    getattr(made, end)('a')
    assert made.info('llm') is None
    assert made.info('other') is None


def test_an_endpoint_replaces_the_information_of_instances() -> None:
    made = registry('a', 'b')
    made.set_endpoint('llm', 'http://router')
    assert {made.info('llm') for _ in range(3)} == {'http://router'}
    made.set_endpoint('llm', '')
    assert made.info('llm') == 'at a'


def test_listeners_hear_of_each_change_and_of_nothing_else() -> None:
    made = registry()
    heard: list[str] = []
    made.on_change(heard.append)
    made.put(ServiceInstance('a', 'llm'))
    made.put(ServiceInstance('a', 'llm'))
    made.put(ServiceInstance('r', 'db'))
    made.withdraw('a')
    made.withdraw('a')
    made.withdraw('unknown')
    made.set_endpoint('db', 'x')
    made.set_endpoint('db', 'x')
    made.remove('a')
    made.remove('a')
    assert heard == ['llm', 'db', 'llm', 'db', 'llm']


@pytest.mark.parametrize(('name', 'expected'), [
    ('llm', 'RP_INFO_LLM'), ('task.000001', 'RP_INFO_TASK_000001'), ('my-db', 'RP_INFO_MY_DB')])
def test_variable(name: str, expected: str) -> None:
    assert variable(name) == expected
