"""An application of its own for tests: `python raptor_application.py BASE CLASS RANKS [NOTES]`.

It runs a worker of that class on all nodes of a pilot on `test.machine`, and makes calls of one rank, with large data,
too. Then it calls MPI functions or, without MPI, kills the ranks of the last node while it makes calls. With a file for
notes, calls on the last node do not end, and note that they have started: the test kills that node. It prints as JSON
how all that went.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import sys
import time
from functools import partial
from typing import Any

import cloudpickle

import radical.pilot as rp

OBJECT = 3_000_000   # bytes; larger than anything else in shared memory

cloudpickle.register_pickle_by_value(sys.modules[__name__])   # workers cannot import this module


def main() -> None:
    """Run it."""
    base, kind, ranks, notes = sys.argv[1], sys.argv[2], int(sys.argv[3]), ''.join(sys.argv[4:])
    with rp.Session(cfg={'base': base}) as session:
        pmgr, tmgr = rp.PilotManager(session=session), rp.TaskManager(session=session)
        pilot = pmgr.submit_pilots(rp.PilotDescription({'resource': 'test.machine', 'cores': ranks + 1, 'runtime': 10}))
        tmgr.add_pilots(pilot)
        (master,) = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
        (worker,) = master.submit_workers(rp.TaskDescription({
            'mode': rp.RAPTOR_WORKER, 'ranks': ranks, 'raptor_class': kind,
            'environment': {'UCX_NET_DEVICES': 'eth0'}}))   # addresses of all devices may be too long for a launcher
        worker.wait(state=[rp.AGENT_EXECUTING, *rp.FINAL], timeout=40)
        told: dict[str, Any] = {'state': worker.state, 'reason': str(worker.exception_detail)}
        if worker.state == rp.AGENT_EXECUTING:
            with master.put_object(bytes(OBJECT)) as ref:
                told |= calls(master, kind, ranks, ref, notes)
            told['then'] = worker.state
        tmgr.cancel_tasks([worker.uid, master.uid])
        tmgr.wait_tasks([worker.uid, master.uid], timeout=30)
        told['end'] = worker.state
        told['slots'] = [slot['node_name'] for slot in worker.slots or ()]
        told['reason'] = f'{worker.exception_detail} {worker.stderr}'
    print(json.dumps(told))


def calls(master: Any, kind: str, ranks: int, ref: Any, notes: str) -> dict[str, Any]:
    """Make calls, also while a node dies."""
    places: list[Any] = []
    deadline = time.monotonic() + 30
    while len({pid for _, pid in places}) < ranks and time.monotonic() < deadline:   # they come one by one
        places = [call.result() for call in rp.raptor.stream(master, where, [0.02] * 100)]
    last = max(name for name, _ in places)
    large = [os.urandom(50_000) * 2 for _ in range(50)]
    told: dict[str, Any] = {
        'places': places,
        'large': all(call.result() == call.item for call in rp.raptor.stream(master, same, large)),
        'objects': [call.result() for call in rp.raptor.stream(master, partial(objects, ref), [0.02] * 100)]}
    if kind == 'MPIWorker':
        told['over'] = [call.result() for call in rp.raptor.stream(master, over, [1, 2], ranks=ranks)]
        told['over some'] = [call.result() for call in rp.raptor.stream(master, over, [1, 2], ranks=ranks - 1)]
    elif notes:
        data = os.urandom(50_000) * 2
        stream = rp.raptor.stream(master, partial(noted, notes, last), [(number, data) for number in range(200)])
        results = [call.result() for call in stream]
        told['after'] = [number for number, back in results if back == data]
        told['places after'] = [call.result() for call in rp.raptor.stream(master, where, [0.02] * 100)]
    else:
        stream = rp.raptor.stream(master, where, [0.05] * 200)
        first = next(stream).result()
        for pid in {pid for name, pid in places if name == last}:   # all hosts share their processes
            os.kill(pid, signal.SIGKILL)
        told['after'] = [first] + [call.result() for call in stream]
    return told


def where(seconds: float) -> list[Any]:
    """The host and the process of a call."""
    time.sleep(seconds)
    return [os.uname().nodename, os.getpid()]


def same(data: bytes) -> bytes:
    """The argument."""
    return data


def objects(data: bytes, seconds: float) -> list[Any]:
    """The host, the files of objects there, and the size of the argument, which is an object."""
    time.sleep(seconds)
    found = [path for path in glob.glob('/dev/shm/radical.pilot.*/*') if os.path.getsize(path) >= OBJECT]
    return [os.uname().nodename, len(found), len(data)]


def noted(notes: str, lost: str, item: tuple[int, bytes]) -> tuple[int, bytes]:
    """Note the start of a call, which returns its argument, but does not end on the host that will be lost."""
    host = os.uname().nodename
    with open(notes, 'a') as file:
        file.write(f'{item[0]} {host}\n')
    time.sleep(600 if host == lost else 0.02)
    return item


def over(comm: Any, number: int) -> list[Any]:
    """The ranks of a communicator, their sum, and the host."""
    return [comm.size, comm.allreduce(comm.rank + number), os.uname().nodename]


if __name__ == '__main__':
    main()
