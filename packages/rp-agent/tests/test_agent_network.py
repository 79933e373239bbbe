"""Where an agent listens for processes on other nodes."""

from __future__ import annotations

import socket

import pytest

from rp_agent.network import listen_address


def test_the_interface_of_the_platform() -> None:
    assert listen_address({'network_interface': 'lo'}, 'x') == 'tcp://lo'
    assert listen_address({'network_interface': 'none0', 'system_architecture': {'iface': 'lo'}}, 'x') == 'tcp://lo'


def test_the_way_to_the_other_node() -> None:
    assert listen_address({}, '127.0.0.1') == 'tcp://127.0.0.1'


def test_a_node_whose_name_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, 'gethostname', lambda: 'localhost')
    assert listen_address({}, 'no.such.host.invalid') == 'tcp://127.0.0.1'
    monkeypatch.setattr(socket, 'gethostname', lambda: 'no.such.host.invalid')
    assert listen_address({}, 'no.such.host.invalid') == 'tcp://127.0.0.1'
