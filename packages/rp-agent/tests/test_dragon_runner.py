"""The program that starts processes in Dragon: what it tells the agent, whenever it happens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any, cast

import pytest

from rp_agent.executor.backends.dragon.executor import RunnerLink
from rp_agent.executor.backends.instance_supervisor import InstanceSupervisor
from rp_api.loop.event_loop import Loop

TIMEOUT = 60.0

# the runner with one process, which ends when the runner has looked for news and is about to wait for more
PROGRAM = '''
import json, sys, threading, zmq
from rp_agent.executor.backends.dragon import dragon_runner

about_to_wait, has_ended = threading.Event(), threading.Event()

class Poller(zmq.Poller):
    def poll(self, timeout=None):
        if runner._processes:
            about_to_wait.set()
            assert has_ended.wait(60)
        return super().poll(timeout)

class Dragon:
    class Process:
        DEVNULL = None
        puid = 1

        def __init__(self, **_): pass

        def start(self): pass

    @staticmethod
    def multi_join(numbers, timeout):
        assert about_to_wait.wait(60)
        return [(number, 3) for number in numbers], {}

class Runner(dragon_runner.DragonRunner):
    def _ended(self, number, code):
        super()._ended(number, code)
        has_ended.set()

zmq.Poller = Poller
runner = Runner(Dragon, json.loads(sys.argv[1]))
runner.connect()
runner.run()
'''


def test_an_end_is_told_though_nothing_else_happens() -> None:
    """It comes at the worst moment, and there is no further process whose end would wake the runner."""
    loop = Loop()
    link = RunnerLink(loop, 'tcp://127.0.0.1:*')
    told: list[Mapping[str, Any]] = []

    def news(message: Mapping[str, Any]) -> None:
        told.append(message)
        if 'ended' in message:
            loop.stop()

    class Supervisor:
        def take_line(self, number: int, line: str) -> None:
            link.send(number, {'run': 'task', 'argv': ['x'], 'environment': {}, 'directory': '/', 'output': ['o', 'e'],
                               'hosts': ['']})

    link.listen(0, news)
    link.supervisor = cast('InstanceSupervisor', Supervisor())
    runner = subprocess.Popen([sys.executable, '-c', PROGRAM, link.invitation(0)])
    try:
        late = loop.call_later(TIMEOUT, pytest.fail, 'its end was not told')
        loop.run()
        late.cancel()
        link.send(0, {'end': True})
        assert runner.wait(TIMEOUT) == 0
    finally:
        runner.kill()
        runner.wait()
        link.close()
        loop.close()
    assert told == [{'started': 'task'}, {'ended': 'task', 'status': 3 << 8}]
