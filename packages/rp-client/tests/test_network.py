"""The address at which agents on other hosts find the session."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from rp_api.platforms.definition import ResourceConfig
from rp_client.launcher import network
from rp_client.launcher.network import own_address


def a_platform(url: str = 'slurm://localhost/', **values: Any) -> ResourceConfig:
    return ResourceConfig({'resource_manager': 'SLURM', 'job_manager_endpoint': url} | values)


@pytest.fixture(autouse=True)
def _nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('RADICAL_PILOT_PROXY_HOST', raising=False)


def bindable(address: str) -> bool:
    with socket.socket() as probe:
        probe.bind((address, 0))
    return True


def test_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RADICAL_PILOT_PROXY_HOST', 'localhost')
    assert own_address(a_platform(network_interface='lo')) == '127.0.0.1'
    monkeypatch.setenv('RADICAL_PILOT_PROXY_HOST', 'lo')
    assert own_address(a_platform()) == 'lo'
    monkeypatch.setenv('RADICAL_PILOT_PROXY_HOST', '10.1.2.3')
    assert own_address(a_platform()) == '10.1.2.3'


def test_interface_of_the_platform() -> None:
    assert own_address(a_platform(network_interface='lo')) == 'lo'
    assert own_address(a_platform(network_interface='ipogif0')) != 'ipogif0'   # only there, not here


def test_towards_the_platform() -> None:
    assert own_address(a_platform('slurm+ssh://127.0.0.2:22/')) == '127.0.0.1'


@pytest.mark.parametrize('url', ['slurm://localhost/', 'ssh://no-such-host.invalid/'])
def test_anywhere(url: str) -> None:
    assert bindable(own_address(a_platform(url)))


def test_no_network_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, 'source_address', lambda host: '')
    monkeypatch.setattr(socket, 'gethostname', lambda: 'no-such-host.invalid')
    assert own_address(a_platform()) == '127.0.0.1'
