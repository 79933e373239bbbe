"""Texts for HAProxy: the configuration of a router, and the commands that change its instances."""

from __future__ import annotations

from rp_agent.services.haproxy import Address, Server, configuration, enabled, update

A, B = Address('10.0.0.1', 80), Address('10.0.0.2', 81)
CHECK = 'check inter 60s fastinter 200ms downinter 200ms rise 1 fall 1 observe layer4 error-limit 1 on-error mark-down'


def lines(*, retry_unsafe: bool = False, **instances: Address) -> list[str]:
    return configuration(instances, '/tmp/w', 99, retry_unsafe=retry_unsafe).splitlines()


def test_a_configuration_has_the_healthy_instances() -> None:
    found = lines(one=A, two=Address('::1', 82))
    assert f'    server i.one 10.0.0.1:80 {CHECK}' in found
    assert f'    server i.two ipv6@::1:82 {CHECK}' in found
    assert '    server starting 127.0.0.1:99 backup' in found
    assert '    server waiting unix@/tmp/w backup maxconn 1 disabled' in found


def test_only_idempotent_requests_are_repeated_unless_the_service_allows_it() -> None:
    rule = '    http-request disable-l7-retry unless { method GET HEAD OPTIONS PUT DELETE TRACE }'
    assert rule in lines()
    assert not [line for line in lines(retry_unsafe=True) if 'disable-l7-retry' in line]


def test_a_uid_cannot_say_anything_to_haproxy() -> None:
    text = configuration({'a b\nserver c': A}, '/w', 1, retry_unsafe=False)
    assert f'    server i.a:20:b:a:server:20:c 10.0.0.1:80 {CHECK}' in text.splitlines()
    commands, _ = update({}, {'x;shutdown': A})
    assert [command.split()[2] for command in commands] == ['instances/i.x:3b:shutdown'] * 3


def test_a_new_instance_is_added_and_enabled() -> None:
    commands, known = update({}, {'a': A})
    assert commands == [f'add server instances/i.a 10.0.0.1:80 {CHECK}', 'enable health instances/i.a',
                        'enable server instances/i.a']
    assert known == {'a': Server(A, True)}


def test_an_instance_that_is_gone_gets_no_requests_until_it_comes_back() -> None:
    commands, known = update(enabled({'a': A, 'b': B}), {'b': B})
    assert commands == ['set server instances/i.a state maint']
    assert update(known, {'b': B}) == ([], known)
    commands, known = update(known, {'a': A, 'b': B})
    assert commands == ['set server instances/i.a state ready']
    assert known == enabled({'a': A, 'b': B})


def test_an_instance_that_comes_back_elsewhere() -> None:
    _, known = update(enabled({'a': A}), {})
    commands, known = update(known, {'a': B})
    assert commands == ['set server instances/i.a addr 10.0.0.2 port 81', 'set server instances/i.a state ready']
    assert update(known, {'a': A})[0] == ['set server instances/i.a addr 10.0.0.1 port 80']


def test_nothing_to_say() -> None:
    assert update(enabled({'a': A}), {'a': A}) == ([], enabled({'a': A}))
