"""Addresses in the information on services, and platforms to which no tunnel leads; real tunnels are in `tests/ssh`."""

from __future__ import annotations

import pytest

from rp_api.errors import PlatformError
from rp_client.launcher.tunnels import Address, Tunnels


@pytest.mark.parametrize(('info', 'address'), [
    ('node1:8000', ('', 'node1', 8000, '')),
    ('http://10.0.0.7:80/v1?a=b', ('http://', '10.0.0.7', 80, '/v1?a=b')),
    ('redis://:secret@n-1.cluster:6379/0', ('redis://:secret@', 'n-1.cluster', 6379, '/0')),
    ('tcp://[fe80::1]:5555', ('tcp://', '[fe80::1]', 5555, '')),
    ('listens at 12:34:56 on n1:7', ('listens at 12:34:56 on ', 'n1', 7, '')),
    ('n1:0 n2:70000 n3:9', ('n1:0 n2:70000 ', 'n3', 9, '')),
    ('4242', None), ('', None), ('http://node1/', None)])
def test_the_address_in_the_information_on_a_service(info: str, address: tuple[str, str, int, str] | None) -> None:
    assert Address.find(info) == address


def test_services_here_need_no_tunnel() -> None:
    assert Tunnels().reach('slurm://localhost/', 'anything') == 'anything'


def test_information_without_an_address_is_refused() -> None:
    with pytest.raises(ValueError, match="'4242' names no host and port"):
        Tunnels().reach('ssh://nowhere/', '4242')


def test_a_host_that_is_not_reached_is_an_error() -> None:
    tunnels = Tunnels()
    with pytest.raises(PlatformError, match=r'no tunnel to node1:80 by 127\.0\.0\.1: .*(refused|reset|closed)'):
        tunnels.reach('ssh://127.0.0.1:1/', 'http://node1:80')
    tunnels.close()
    with pytest.raises(RuntimeError, match='the session was closed'):
        tunnels.reach('ssh://127.0.0.1:1/', 'http://node1:80')
