"""Channels of the application on real pilots: tasks put and get messages, also across partitions."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from conftest import pilot_description, processes_with, wait_until

import radical.pilot as rp

PRODUCER = """
import os
import radical.pilot as rp
with rp.AppQueue('work_queue') as work:
    for number in range(50):
        work.put(os.environ['RP_TASK_ID'][-1] + str(number))
"""

CONSUMER = """
import radical.pilot as rp
got = []
with rp.AppQueue('work_queue') as work, rp.AppPublisher('news_pubsub') as news:
    while (message := work.get(timeout=60)) is not None:
        got.append(message)
        news.publish(message, 'done')
print(*got)
"""

# it gets what the environment says, but not the keys
STRANGER = """
import os, zmq
socket = zmq.Context.instance().socket(zmq.DEALER)
socket.linger = 0
socket.connect(os.environ['RP_WORK_QUEUE_OUT'])
socket.send_multipart([b'\\x92\\xa3get\\x01'])
print(socket.poll(500))
"""


def program(text: str, uid: str, **more: object) -> rp.TaskDescription:
    return rp.TaskDescription({'uid': uid, 'executable': sys.executable, 'arguments': ['-c', text], **more})


@pytest.mark.parametrize('partitions', [0, 2])
def test_messages_go_from_two_producers_to_two_consumers(session: rp.Session, base: Path, partitions: int) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, cores=6, partitions=partitions,
                                                 app_comm=['work_queue', 'news_pubsub']))
    tmgr.add_pilots(pilot)
    pilot.wait(rp.PMGR_ACTIVE, timeout=60)
    assert pilot.state == rp.PMGR_ACTIVE
    with (rp.AppSubscriber('news_pubsub', ['done'], sandbox=pilot.pilot_sandbox) as news,
          rp.AppQueue('work_queue', sandbox=pilot.pilot_sandbox) as work):
        stranger = tmgr.submit_tasks(program(STRANGER, 'stranger'))
        stranger.wait(timeout=60)
        where = [{'partition': number % 2} if partitions else {} for number in range(4)]
        producers = tmgr.submit_tasks([program(PRODUCER, f'producer.{each}', **where[each]) for each in range(2)])
        tmgr.wait_tasks([task.uid for task in producers], timeout=60)
        consumers = tmgr.submit_tasks([program(CONSUMER, f'consumer.{each}', **where[each]) for each in range(2)])
        published = [news.get(60)[1] for _ in range(100)]
        for _ in consumers:
            work.put(None)
        tmgr.wait_tasks(timeout=60)
    assert [task.stderr for task in (*producers, *consumers) if task.state != rp.DONE] == []
    everything = sorted(f'{producer}{number}' for producer in range(2) for number in range(50))
    assert sorted(message for task in consumers for message in task.stdout.split()) == everything
    assert sorted(published) == everything
    assert (stranger.state, stranger.stdout.strip()) == (rp.DONE, '0')
    pilot.cancel()
    wait_until(lambda: not (Path(pilot.pilot_sandbox) / 'app_comm.json').exists())
    with pytest.raises(RuntimeError, match='has no channels, or has ended'):
        rp.AppQueue('work_queue', sandbox=pilot.pilot_sandbox)


@pytest.mark.parametrize('names', [['work'], ['a-b_queue'], ['_queue'], ['a_queue', 'A_queue'], ['1_pubsub']])
def test_names_of_channels_are_checked(session: rp.Session, base: Path, names: list[str]) -> None:
    with pytest.raises(ValueError, match=r'app_comm is .*must be different names of letters.*"_queue" or "_pubsub"'):
        rp.PilotManager(session).submit_pilots(pilot_description(base, app_comm=names))


@pytest.mark.parametrize('victim', ['rp_agent.cli', 'rp_agent.app_comm.broker'])
def test_channels_end_with_their_pilot_when_one_of_its_processes_dies(session: rp.Session, base: Path,
                                                                      victim: str) -> None:
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    pilot = pmgr.submit_pilots(pilot_description(base, app_comm=['work_queue'], exit_on_error=False))
    tmgr.add_pilots(pilot)
    waiting = tmgr.submit_tasks(program("import radical.pilot as rp; rp.AppQueue('work_queue').get()", 'waiting'))
    waiting.wait(rp.AGENT_EXECUTING, timeout=60)
    (pid,) = [pid for pid, command in processes_with(victim).items()
              if victim in command and os.path.samefile(f'/proc/{pid}/cwd', pilot.pilot_sandbox)]
    os.kill(pid, signal.SIGKILL)
    assert (pilot.wait(timeout=60), waiting.wait(timeout=60)) == (rp.FAILED, rp.FAILED)
    assert victim == 'rp_agent.cli' or 'has lost the channels of app_comm: their broker' in str(pilot.exception)
    wait_until(lambda: not (Path(pilot.pilot_sandbox) / 'app_comm.json').exists())
