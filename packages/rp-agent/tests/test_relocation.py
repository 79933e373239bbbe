"""Agent_0 on the first node of a pilot whose job starts on another host. A stand-in for ssh pretends the node."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_support import real, uids, wait_until
from pipeline_support import processes_of

from rp_agent.nodes import relocation
from rp_agent.resource_manager.base import Allocation
from rp_agent.resource_manager.systems.find import allocation_of, as_plain
from rp_api import states
from rp_api.errors import PlatformError
from rp_api.loop.event_loop import Loop
from rp_api.task_info.slots import whole_slots

SSH = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'
JOB: dict[str, Any] = {
    'agent': {'target': 'node'}, 'nodes': 0, 'cores': 1, 'gpus': 0, 'environment': {'A': 'b'},
    'platform': {'resource_manager': 'TORQUE', 'cores_per_node': 2, 'agent_spawner': 'POPEN', 'agent_config': 'default',
                 'launch_methods': {'order': ['SSH']}, 'system_architecture': {}}}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretends a job on nodes with these names, which `ssh` reaches."""
    (tmp_path / 'ssh').write_text(SSH)
    (tmp_path / 'ssh').chmod(0o755)
    monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')

    def begin(*names: str) -> None:
        (tmp_path / 'nodes').write_text('\n'.join(names))
        monkeypatch.setenv('PBS_JOBID', '1')
        monkeypatch.setenv('PBS_NODEFILE', str(tmp_path / 'nodes'))

    return begin


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def test_only_an_agent_that_is_on_no_node_moves(job: Callable[..., None]) -> None:
    job(os.uname().nodename, 'h9')
    here = dict(JOB)
    assert relocation.elsewhere(here) is None
    assert allocation_of(here).names == (os.uname().nodename,)   # the resource manager is asked once
    job('h9')
    assert relocation.elsewhere({**JOB, 'agent': {}}) is None
    assert relocation.elsewhere(config := dict(JOB)) == allocation_of(config)
    assert relocation.elsewhere(config) is None   # such as an agent of a partition


def test_an_agent_that_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('SLURMD_NODENAME', 'h8')
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '2,3')
    there = Allocation(('h8', 'h9'), 2, 2, 0, 0, elsewhere=(0, 1))
    found = relocation.arrive(JOB | {'allocation': as_plain(there), 'relocated': True, 'job_age': 3.0})
    assert 'relocated' not in found   # an agent of a partition, which has this configuration, has not moved
    assert found['environment'] == {'A': 'b', 'SLURMD_NODENAME': 'h8'} | {
        name: os.environ[name] for name in ('HOSTNAME',) if name in os.environ}
    here = allocation_of(found)
    assert (here.here, here.elsewhere, here.gpu_ids) == ([0], (1,), ('2', '3'))


def test_a_tunnel_ends_on_the_host_of_the_job(job: Callable[..., None], monkeypatch: pytest.MonkeyPatch,
                                              loop: Loop) -> None:
    job('h9')
    monkeypatch.setenv('RP_TUNNEL', '/tmp/socket')
    with pytest.raises(PlatformError, match="target is 'node', allowed: 'local' on this platform, because the tunnel"):
        relocation.RelocatedAgent(JOB | {'pilot_sandbox': '.'}, loop, allocation_of(JOB))


@pytest.mark.parametrize(('said', 'ended'), [(b'\n', True), (b'', False)])
def test_the_end_of_standard_input(loop: Loop, said: bytes, ended: bool) -> None:
    """It means nothing if the launcher has not forwarded anything."""
    reader, writer = os.pipe()
    calls: list[int] = []
    relocation.RelocationWatch(loop, lambda: calls.append(1), reader)
    os.write(writer, said) if said else None
    os.close(writer)
    loop.call_later(0.1, loop.stop)
    loop.run()
    os.close(reader)
    assert bool(calls) is ended


@pytest.mark.parametrize(('number', 'code'), [(signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_a_signal_to_the_process_that_has_launched_it(job: Callable[..., None], tmp_path: Path, number: signal.Signals,
                                                      code: int) -> None:
    job('h9')
    with real(tmp_path, agent={key: value for key, value in JOB.items() if key != 'environment'}) as (app, agent):
        app.submit(uids(2))
        app.until_left(uids(2))
        placed = [whole_slots((app.tasks[uid].info or {})['slots']) or [] for uid in uids(2)]
        assert {slots[0]['node_name'] for slots in placed} == {'h9'}
        app.submit(['long'], executable='/bin/sleep', arguments=['100'])
        app.until_state(['long'], states.AGENT_EXECUTING)
        agent.signal(number)
        assert agent.wait() == code
        app.until(lambda: app.pilots[-1].state == states.FAILED, 'the end of the pilot')
        assert (app.pilots[-1].info or {})['reason'] == (
            'pilot.0000 was told to end by a signal, before its runtime was over')
    wait_until(lambda: not processes_of(str(tmp_path / 'pilot')), 'the end of all processes')
    if number == signal.SIGTERM:
        assert not list((tmp_path / 'pilot').glob('*.cfg'))   # they hold keys


def test_an_agent_that_fails_on_the_node(job: Callable[..., None], tmp_path: Path, loop: Loop) -> None:
    job('h9')
    (tmp_path / 'bootstrap_2.sh').write_text('echo "rp-agent: no luck today" >&2; echo "ssh: other words" >&2; exit 3')
    launched = relocation.RelocatedAgent(JOB | {'pilot_sandbox': str(tmp_path)}, loop, allocation_of(JOB))
    loop.run()
    with pytest.raises(PlatformError) as caught:
        launched.check()
    assert str(caught.value).splitlines()[-1] == (
        f'the agent on h9, launched by SSH, ended with exit code 3; see {tmp_path}/agent_0.node.err: no luck today')
    launched.close()
    assert not (tmp_path / 'agent_0.node.cfg').exists()
