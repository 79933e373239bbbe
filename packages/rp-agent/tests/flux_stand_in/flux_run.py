"""`flux run` of the stand-in: a job in the instance that FLUX_URI names, whose output goes to that of this process."""

import argparse
import json
import os
import sys

import flux
from flux import job


def main() -> int:
    parser = argparse.ArgumentParser()
    for name, kind in (('nodes', int), ('ntasks', int), ('cores-per-task', int), ('setattr', str), ('requires', str)):
        parser.add_argument(f'--{name}', type=kind)
    parser.add_argument('command', nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    assert asked.nodes == asked.ntasks == 1, 'there is one node'
    assert asked.requires == f'hosts:{os.uname().nodename}', asked.requires
    key, _, value = asked.setattr.removeprefix('user.').partition('=')
    output = {name: {'type': 'file', 'path': f'/proc/{os.getpid()}/fd/{number}'} for number, name in
              ((1, 'stdout'), (2, 'stderr'))}
    cores = asked.cores_per_task
    environment = {**os.environ, 'FLUX_STAND_IN_CORES': str(cores)}
    handle = flux.Flux()
    number = job.submit_get_id(job.submit_async(handle, json.dumps({
        'version': 1,
        'resources': [{'type': 'slot', 'count': 1, 'label': 'task', 'with': [{'type': 'core', 'count': cores}]}],
        'tasks': [{'command': asked.command, 'slot': 'task', 'count': {'per_slot': 1}}],
        'attributes': {'user': {key: value}, 'system': {'duration': 0, 'cwd': os.getcwd(), 'environment': environment,
                                                        'shell': {'options': {'output': output}}}}})))
    events = job.event_watch_async(handle, number)
    while True:
        event = events.get_event()
        if event.name in ('exception', 'clean'):
            print(f'flux-run: {event.name}: {event.context}', file=sys.stderr)
        if event.name == 'clean':
            return 1
        events.reset()


sys.exit(main())
