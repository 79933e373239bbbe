"""Addresses of this host."""

from __future__ import annotations

import socket

import pytest

from rp_api.system.network import address_towards, interfaces, resolved, source_address

NO_NAME = 'x' * 300   # longer than a part of a name can be


def test_interfaces() -> None:
    assert 'lo' in interfaces()


@pytest.mark.parametrize(('host', 'address'), [('127.0.0.2', '127.0.0.1'), ('no-such-host.invalid', ''), (NO_NAME, '')])
def test_source_address(host: str, address: str) -> None:
    assert source_address(host) == address


@pytest.mark.parametrize(('name', 'address'), [('localhost', '127.0.0.1'), ('no-such-host.invalid', ''), (NO_NAME, '')])
def test_resolved(name: str, address: str) -> None:
    assert resolved(name) == address


def test_address_towards_a_server() -> None:
    assert address_towards('tcp://127.0.0.2:4711') == 'tcp://127.0.0.1'
    with pytest.raises(socket.gaierror):
        address_towards('tcp://no-such-host.invalid:4711')
