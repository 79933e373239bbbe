"""A campaign with ten mistakes in it, in the working directory, as a new user might write it.

It prints `ready` when eight tasks have ended and two wait, and closes the session when there is a line on standard
input.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import radical.pilot as rp


def energy(number: int) -> float:
    import openmmm  # type: ignore[import-not-found]   # it is openmm

    return float(openmmm.energy(number))


def task(uid: str, executable: str, *arguments: str, **values: Any) -> rp.TaskDescription:
    return rp.TaskDescription({'uid': uid, 'executable': executable, 'arguments': list(arguments), **values})


def main() -> None:
    session = rp.Session(uid='campaign')
    pmgr, tmgr = rp.PilotManager(session), rp.TaskManager(session)
    tmgr.add_pilots(pmgr.submit_pilots(rp.PilotDescription({
        'resource': 'local.exact', 'cores': 4, 'runtime': 10, 'sandbox': os.getcwd()})))
    store, = tmgr.submit_tasks([task('store', 'sleep', '600', mode=rp.TASK_SERVICE, cores_per_rank=2)])
    store.wait(rp.AGENT_EXECUTING, timeout=60)
    master, = tmgr.submit_raptors([rp.TaskDescription({'mode': rp.RAPTOR_MASTER})])
    master.submit_workers([rp.TaskDescription({'mode': rp.RAPTOR_WORKER})])
    call, = master.submit_tasks([rp.TaskDescription({
        'uid': 'energy', 'mode': rp.TASK_FUNCTION, 'function': rp.PythonTask(energy, (1,))})])
    call.wait(timeout=60)
    master.cancel()
    master.wait(timeout=60)
    ended = tmgr.submit_tasks([
        task('prepare', 'pyhton3', 'prepare.py'),
        task('relax', 'sh', '-c', 'echo "atom C17 has no charge" >&2; exit 3'),
        task('sample', 'sleep', '60', timeout=1),
        task('train', 'true', gpus_per_rank=2),
        task('plot', 'true', after=['relax']),
        task('dock', 'true', input_staging=['ligand.pdb']),
        task('fold', sys.executable, '-c', 'import ctypes; ctypes.string_at(0)')])
    tmgr.wait_tasks([each.uid for each in ended], timeout=60)
    tmgr.submit_tasks([task('score', 'true', services=['databse']), task('merge', 'true', cores_per_rank=3)])
    print('ready', flush=True)
    sys.stdin.readline()
    session.close()


if __name__ == '__main__':
    main()
