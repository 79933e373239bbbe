"""An application of its own for tests: `python raptor_application.py BASE CLASS RANKS`.

It runs a worker of that class on all nodes of a pilot on `test.machine`, and makes calls of one rank. Then it calls an
MPI function on all ranks or, without MPI, kills the ranks of the last node while it makes calls. It prints as JSON how
all that went.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import radical.pilot as rp


def main() -> None:
    """Run it."""
    base, kind, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with rp.Session(cfg={'base': base}) as session:
        pmgr, tmgr = rp.PilotManager(session=session), rp.TaskManager(session=session)
        pilot = pmgr.submit_pilots(rp.PilotDescription({'resource': 'test.machine', 'cores': ranks + 1, 'runtime': 10}))
        tmgr.add_pilots(pilot)
        (master,) = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))
        (worker,) = master.submit_workers(rp.TaskDescription({
            'mode': rp.RAPTOR_WORKER, 'ranks': ranks, 'raptor_class': kind}))
        worker.wait(state=[rp.AGENT_EXECUTING, *rp.FINAL], timeout=40)
        told: dict[str, Any] = {'state': worker.state, 'reason': str(worker.exception_detail)}
        if worker.state == rp.AGENT_EXECUTING:
            told |= calls(master, kind, ranks)
            told['then'] = worker.state
        tmgr.cancel_tasks([worker.uid, master.uid])
        tmgr.wait_tasks([worker.uid, master.uid], timeout=30)
        told['slots'] = [slot['node_name'] for slot in worker.slots or ()]
        told['reason'] = f'{worker.exception_detail} {worker.stderr}'
    print(json.dumps(told))


def calls(master: Any, kind: str, ranks: int) -> dict[str, Any]:
    """Make calls, also while a node dies."""
    def where(number: float) -> list[Any]:
        time.sleep(number)
        return [os.uname().nodename, os.getpid()]

    def over(comm: Any, number: int) -> list[Any]:
        return [comm.size, comm.allreduce(comm.rank + number), os.uname().nodename]

    places: list[Any] = []
    deadline = time.monotonic() + 30
    while len({pid for _, pid in places}) < ranks and time.monotonic() < deadline:   # they come one by one
        places = [call.result() for call in rp.raptor.stream(master, where, [0.02] * 100)]
    told: dict[str, Any] = {'places': places}
    if kind == 'MPIWorker':
        told['over'] = [call.result() for call in rp.raptor.stream(master, over, [1, 2], ranks=ranks)]
        return told
    last = max(name for name, _ in told['places'])
    stream = rp.raptor.stream(master, where, [0.05] * 200)
    results = [next(stream).result()]
    for pid in {pid for name, pid in told['places'] if name == last}:   # all hosts share their processes
        os.kill(pid, signal.SIGKILL)
    told['after'] = results + [call.result() for call in stream]
    return told


if __name__ == '__main__':
    main()
