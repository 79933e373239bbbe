"""The transport between the nodes of a RAPTOR worker: which fabric a host has, and what is chosen for a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rp_agent.raptor import transport
from rp_agent.raptor.transport import Transports, fabric
from rp_agent.task import Description

Port = tuple[str, str, str, str]
"""Device, driver, state and link layer."""

OMNI_PATH = 'hfi1_0', 'hfi1', '4: ACTIVE', 'InfiniBand'
INFINIBAND = 'mlx5_0', 'mlx5_core', '4: ACTIVE', 'InfiniBand'
ROCE = 'mlx5_1', 'mlx5_core', '4: ACTIVE', 'Ethernet'
SOFT_ROCE = 'rxe0', '', '4: ACTIVE', 'Ethernet'
DOWN = 'mlx5_2', 'mlx5_core', '1: DOWN', 'InfiniBand'


def host(root: Path, *ports: Port, slingshot: bool = False) -> str:
    """Write the tree of a host with these ports, and return its root."""
    (root / 'sys/class/net/eth0').mkdir(parents=True)
    if slingshot:
        (root / 'sys/class/cxi/cxi0').mkdir(parents=True)
    for device, driver, state, link_layer in ports:
        port = root / f'sys/class/infiniband/{device}/ports/1'
        port.mkdir(parents=True)
        (port / 'state').write_text(f'{state}\n')
        (port / 'link_layer').write_text(f'{link_layer}\n')
        if driver:
            (root / 'sys/bus/drivers' / driver).mkdir(parents=True, exist_ok=True)
            (root / f'sys/class/infiniband/{device}/device').mkdir()
            (root / f'sys/class/infiniband/{device}/device/driver').symlink_to(root / 'sys/bus/drivers' / driver)
    return str(root)


@pytest.mark.parametrize(('ports', 'slingshot', 'found'), [
    ((), False, ''), ((), True, 'Slingshot'), ((INFINIBAND,), False, 'InfiniBand'), ((OMNI_PATH,), False, 'Omni-Path'),
    ((ROCE,), False, ''), ((SOFT_ROCE,), False, ''), ((DOWN,), False, ''), ((DOWN, ROCE, SOFT_ROCE), False, ''),
    ((ROCE, DOWN, INFINIBAND), False, 'InfiniBand'), ((ROCE,), True, 'Slingshot')])
def test_the_fabric_of_a_host(tmp_path: Path, ports: tuple[Port, ...], slingshot: bool, found: str) -> None:
    assert fabric(host(tmp_path, *ports, slingshot=slingshot)) == found


def test_a_class_of_devices_without_any_is_no_fabric(tmp_path: Path) -> None:
    for name in ('cxi', 'infiniband/mlx5_0/ports/1'):
        (tmp_path / 'sys/class' / name).mkdir(parents=True)
    assert fabric(str(tmp_path)) == ''
    assert fabric(str(tmp_path / 'nothing')) == ''


PLATFORM = {'launch_methods': {'order': ['FORK', 'SRUN']}}


class Choices:
    """What is chosen on a host with or without InfiniBand, where MPI works or not."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        self._monkeypatch = monkeypatch
        self._made: list[Transports] = []

    def choose(self, description: dict[str, Any] | None = None, *, fabric: bool = True, trial: str = 'pass',
               **platform: Any) -> str:
        self._monkeypatch.setattr(transport, '_TRIAL', trial)
        root = self._path / str(len(self._made))
        made = Transports(PLATFORM | platform, host(root, *((INFINIBAND,) if fabric else ())))
        self._made.append(made)
        return made.of('worker.0000', Description(description or {}))

    def close(self) -> None:
        for each in self._made:
            each.close()


@pytest.fixture
def choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Choices]:
    found = Choices(tmp_path, monkeypatch)
    yield found
    found.close()


def test_mpi_is_the_default_where_it_uses_a_fabric_and_works(choices: Choices,
                                                             caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level('INFO', 'radical.pilot.agent.raptor')
    assert choices.choose() == 'mpi'
    assert choices.choose(fabric=False) == 'zmq'
    assert choices.choose(trial='raise ImportError("cannot load MPI library")') == 'zmq'
    assert choices.choose(trial='import os; os._exit(3)') == 'zmq'
    assert choices.choose(launch_methods={'order': ['FORK', 'SSH']}) == 'zmq'
    assert choices.choose({'named_env': 'other'}) == 'zmq'
    assert choices.choose({'container': {'image': 'any'}}) == 'zmq'
    assert [text.partition('nodes: ')[2] for text in caplog.messages] == [
        'MPI uses InfiniBand', 'MPI would use TCP, without encryption',
        'mpi4py cannot be used: ImportError: cannot load MPI library', 'mpi4py cannot be used: exit code 3',
        'no launch method of the platform starts MPI jobs', 'it is not known whether MPI works in its environment',
        'it is in a container']


def test_the_description_decides_before_the_platform(choices: Choices) -> None:
    mpi, zmq = {'transport': 'mpi'}, {'transport': 'zmq'}
    assert choices.choose(zmq) == 'zmq'
    assert choices.choose(mpi, fabric=False) == 'mpi'
    assert choices.choose(fabric=False, raptor=mpi) == 'mpi'
    assert choices.choose(raptor=zmq) == 'zmq'
    assert choices.choose(zmq, raptor=mpi) == 'zmq'
    assert choices.choose(mpi, raptor=zmq) == 'mpi'
    assert choices.choose({'container': {'image': 'any'}}, raptor=mpi) == 'zmq'
