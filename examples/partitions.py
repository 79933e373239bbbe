"""One pilot with a partition for long tasks and one for short ones: neither waits for the other."""

import radical.pilot as rp

LONG, SHORT = 0, 1

with rp.Session() as session:
    pmgr = rp.PilotManager(session)
    tmgr = rp.TaskManager(session)

    # the sizes of the partitions are the size of the pilot: three cores
    pilot = pmgr.submit_pilots(rp.PilotDescription({
        'resource': 'local.exact', 'runtime': 10, 'partitions': [{'cores': 2}, {'cores': 1}]}))
    tmgr.add_pilots(pilot)

    simulations = tmgr.submit_tasks([
        rp.TaskDescription({'executable': 'sleep', 'arguments': [1], 'partition': LONG}) for _ in range(4)
    ])
    queries = tmgr.submit_tasks([
        rp.TaskDescription({'executable': 'echo', 'arguments': [n], 'partition': SHORT}) for n in range(20)
    ])
    tmgr.wait_tasks([query.uid for query in queries])
    waiting = sum(simulation.state != rp.DONE for simulation in simulations)
    print(f'{len(queries)} short tasks are done, {waiting} long ones are not')

    # the short ones are over: their core goes to the long ones that are still to come
    pilot.remove_partition(SHORT)
    more = pilot.add_partition(cores=1)
    tmgr.submit_tasks([rp.TaskDescription({'executable': 'sleep', 'arguments': [1]}) for _ in range(3)])
    tmgr.wait_tasks()
    for task in tmgr.get_tasks(tmgr.list_tasks()[-3:]):
        print(task.uid, task.state, 'in partition', task.partition)
    print(more.uid, 'has', more.resources['cpu'], 'core')
