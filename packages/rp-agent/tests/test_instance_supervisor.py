"""Processes of instances: started, heard, ended; here they are shell scripts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from instance_support import ScriptLauncher, SupervisorHarness
from leftovers import end_of, open_descriptors

from rp_agent.executor.backends.fleet import RESTARTS, Demand
from rp_agent.executor.backends.launcher import Startup

READY = 'echo address "here $0"; echo ready; exec sleep 1000'

Make = Callable[..., SupervisorHarness]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    before = open_descriptors()
    made: list[SupervisorHarness] = []

    def make(script: str, parts: int = 1, **times: float) -> SupervisorHarness:
        ranges = [range(n, n + 1) for n in range(parts)]
        made.append(SupervisorHarness(tmp_path, ScriptLauncher(script, **times), ranges))
        return made[-1]

    yield make
    for harness in made:
        harness.close()
    assert open_descriptors() <= before


def test_a_task_starts_the_instances_and_is_launched_with_one(make: Make) -> None:
    harness = make(READY, parts=2)
    harness.supervisor.admit(Demand('t', 1))
    harness.until(lambda: harness.launched and len(harness.events()) == 6)
    assert harness.launched in ([('t', 0, 'here 0')], [('t', 1, 'here 1')])
    harness.supervisor.done('t')
    harness.stop()
    events = harness.events()
    for number in range(2):
        expected = ['dvm_start', 'dvm_uri', 'dvm_ready', 'dvm_stop']
        assert [event for event, message in events if message == f'dvm_id={number}'] == expected


def test_an_instance_that_dies_is_started_again_under_another_number(make: Make) -> None:
    harness = make('echo address "$$"; echo ready; exec sleep 1000')
    harness.supervisor.admit(Demand('t', 1))
    harness.until(lambda: harness.launched)
    harness.loop.call_soon(os.kill, int(harness.launched[0][2]), signal.SIGKILL)
    harness.until(lambda: harness.abandoned)
    assert harness.abandoned == [('t', 'SCRIPT: was killed by SIGKILL, its last lines:\naddress '
                                       f'{harness.launched[0][2]}\nready')]
    harness.supervisor.failed('t', 'gone')
    harness.until(lambda: len(harness.launched) == 2)
    assert [message for event, message in harness.events() if event == 'dvm_start'] == ['dvm_id=0', 'dvm_id=1']
    harness.supervisor.done('t')
    harness.stop()


def test_one_that_does_not_start_is_tried_again_and_lost(make: Make) -> None:
    harness = make(f'test $1 = n1 || {{ echo no such fabric >&2; exit 3; }}; {READY}', parts=2)
    harness.supervisor.admit(Demand('t', 1, 0, placed=True))
    harness.until(lambda: harness.again and len(harness.events()) == 3 + 2 * (1 + RESTARTS))
    reason = 'ended with exit code 3, its last lines:\nno such fabric'
    assert harness.again == [('t', f'SCRIPT: instance 0 is lost: {reason}')]
    assert harness.losses == [(range(1), f'SCRIPT: {reason}')]
    other = next(message for event, message in harness.events() if event == 'dvm_ready')
    events = [event for event, message in harness.events() if message != other]
    assert events == ['dvm_start', 'dvm_stop'] * (1 + RESTARTS)
    harness.stop()


def test_the_last_one_is_lost(make: Make) -> None:
    """There is no other place for its tasks, wherever they were to run."""
    harness = make('echo no such fabric >&2; exit 3')
    harness.supervisor.admit(Demand('t', 1, 0, placed=True))
    harness.until(lambda: harness.refused)
    assert harness.refused == [('t', 'SCRIPT: instance 0 is lost: ended with exit code 3, its last lines:\n'
                                     'no such fabric')]
    harness.stop()


def test_one_that_is_not_ready_in_time_is_lost(make: Make) -> None:
    harness = make('echo address here; exec sleep 1000', seconds_to_start=0.05)
    harness.supervisor.admit(Demand('t', 1))
    harness.until(lambda: harness.refused)
    assert harness.refused == [('t', 'SCRIPT: no instance is left, the last one is lost: was not ready within 0.05 s')]


def test_a_program_that_is_not_there(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptLauncher, 'startup', lambda *arguments: Startup(('no-such-launcher',)))
    harness = make('')
    harness.supervisor.admit(Demand('t', 1))
    harness.until(lambda: harness.refused)
    assert 'cannot be started: ' in harness.refused[0][1]
    assert 'no-such-launcher' in harness.refused[0][1]
    harness.stop()


def test_one_that_does_not_end_is_killed(make: Make) -> None:
    harness = make('trap "" TERM; echo address $$; echo ready; while :; do sleep 1; done', seconds_to_stop=0.05)
    harness.supervisor.admit(Demand('t', 1))
    harness.until(lambda: harness.launched)
    harness.supervisor.forget('t')
    harness.stop()
    assert harness.events()[-1] == ('dvm_fail', 'dvm_id=0')
    assert end_of(int(harness.launched[0][2]))


def test_nothing_is_left_when_a_supervisor_is_closed(make: Make) -> None:
    harness = make('sleep 1000 & echo address $!; echo ready; wait')
    harness.supervisor.admit(Demand('t', 1))
    harness.until(lambda: harness.launched)
    harness.close()
    assert end_of(int(harness.launched[0][2]))


def test_which_instance_has_a_node(make: Make) -> None:
    harness = make(READY, parts=3)
    assert [harness.supervisor.index_of(position) for position in range(3)] == [0, 1, 2]
    harness.stop()
