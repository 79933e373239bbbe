"""Run eight small tasks on this machine and print what they wrote."""

import radical.pilot as rp

with rp.Session() as session:
    pmgr = rp.PilotManager(session)
    tmgr = rp.TaskManager(session)

    # a pilot holds resources, here two cores of this machine for ten minutes at most
    pilot = pmgr.submit_pilots(rp.PilotDescription(resource='local.exact', cores=2, runtime=10))
    tmgr.add_pilots(pilot)

    tasks = tmgr.submit_tasks([
        rp.TaskDescription(executable='echo', arguments=['hello from number', n]) for n in range(8)
    ])
    tmgr.wait_tasks()

    for task in tasks:
        print(task.uid, task.state, task.stdout.strip())
