"""An application whose session has a bit of everything: `python everything.py BASE`.

It prints where the session and its pilot are when all is at work, as JSON, and ends when it may.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

import radical.pilot as rp


def total(values: Any) -> float:
    """Return a sum in a worker."""
    return float(values.sum())


def main(base: str) -> None:
    """Run tasks of all kinds, with services, channels, environments, objects, and cached results."""
    with rp.Session(cfg={'base': base, 'hub': {'listen': 'tcp://127.0.0.1'}}) as session:
        tmgr = rp.TaskManager(session)
        pilot = rp.PilotManager(session).submit_pilots(rp.PilotDescription({
            'resource': 'local.exact', 'cores': 6, 'runtime': 10, 'sandbox': base, 'app_comm': ['a_queue'],
            'enable_ep': True,
            '_config': {'agents': {'agent_1': {'target': 'local', 'components': {'agent_executing': {}}}}},
            'prepare_env': {'kept': {'type': 'venv', 'keep': True, 'pack': True},
                            'named': {'type': 'venv', 'path': f'{base}/named'}}}))
        tmgr.add_pilots(pilot)
        tmgr.submit_tasks(rp.TaskDescription(
            {'mode': rp.TASK_SERVICE, 'executable': 'sleep', 'arguments': ['86405'], 'service': {'name': 'serves'}}))
        master = pilot.submit_raptors(rp.TaskDescription({'mode': rp.RAPTOR_MASTER}))[0]
        master.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': 2}))
        with rp.raptor.Executor(master) as executor:
            values = np.ones(1_000_000)
            futures = [executor.submit(total, each) for each in (values, master.put_object(values))]
            assert [future.result(150) for future in futures] == [1e6] * 2
            rest = tmgr.submit_tasks([rp.TaskDescription({'executable': 'true', **more}) for more in (
                {}, {'pre_exec': ['true']}, {'cache': True}, {'services': ['serves']}, {'named_env': 'kept'},
                {'named_env': 'named'})])
            tmgr.wait_tasks([task.uid for task in rest], timeout=150)
            assert [task.state for task in rest] == [rp.DONE] * len(rest), [str(task.exception) for task in rest]
            print(json.dumps([session.path, pilot.pilot_sandbox]), flush=True)
            sys.stdin.readline()


if __name__ == '__main__':
    main(sys.argv[1])
