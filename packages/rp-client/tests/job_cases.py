"""Pilots for each batch system, which ask for everything that it knows, or for little."""

from __future__ import annotations

from typing import Any

from rp_api.description.pilot import PilotDescription
from rp_api.platforms.definition import ResourceConfig
from rp_client.launcher.batch.job import job_request
from rp_client.launcher.batch.systems.request import JobRequest

SANDBOX = '/scratch/me/pilot.0000'

PLATFORM = {
    'label': 'site.machine', 'resource_manager': 'SLURM', 'cores_per_node': 64, 'gpus_per_node': 4,
    'default_queue': 'normal'}
WHOLE = {'nodes': 2, 'runtime': 90, 'queue': 'debug', 'project': 'abc', 'job_name': 'my job', 'memory': 4096}
SMALL = {'cores': 65, 'runtime': 5}
RICH = {'system_architecture': {'options': ['nvme', 'a=1'], 'exclusive': True, 'smt': 1, 'blocked_cores': [0]}}
UNKNOWN = {'cores_per_node': 0, 'gpus_per_node': 0}
CORES = {'cores': 12, 'runtime': 10}

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    'slurm': ('slurm', WHOLE | {'queue': 'debug:high', 'project': 'abc:res', 'requeue': True}, {}),
    'slurm_rich': ('slurm', SMALL | {'gpus': 3}, RICH),
    'slurm_cores': ('slurm', CORES | {'gpus': 3, 'memory': 4096}, UNKNOWN),
    'slurm_nodes': ('slurm', WHOLE, {'job_size': 'nodes', 'gpu_request': 'none'}),
    'slurm_gres': ('slurm', {'cores': 1, 'gpus': 5}, {'gpu_request': 'gres', 'system_architecture': {'gpu': 'v100'}}),
    'slurm_qos': ('slurm', SMALL, {'queue_type': 'qos', 'default_project': 'theirs'}),
    'pbspro': ('pbspro', WHOLE | {'requeue': True}, RICH), 'pbspro_small': ('pbspro', SMALL, {}),
    'pbspro_cores': ('pbspro', CORES | {'gpus': 5, 'memory': 4096}, UNKNOWN),
    'pbspro_nodes': ('pbspro', WHOLE, {'job_size': 'nodes', 'gpu_request': 'none'}),
    'torque': ('torque', WHOLE, RICH), 'torque_small': ('torque', SMALL, {}),
    'torque_cores': ('torque', CORES, UNKNOWN),
    'sge': ('sge', WHOLE | {'requeue': True}, RICH), 'sge_small': ('sge', SMALL, {}),
    'sge_cores': ('sge', CORES, UNKNOWN),
    'lsf': ('lsf', WHOLE | {'project': 'abc:res', 'requeue': True}, RICH),
    'lsf_jsrun': ('lsf', WHOLE, {'launch_methods': {'order': ['JSRUN']}} | RICH),
    'lsf_cores': ('lsf', CORES, UNKNOWN),
    'flux': ('flux', WHOLE | {'memory': 0}, RICH), 'flux_cores': ('flux', CORES, UNKNOWN),
    'flux_gpus': ('flux', CORES | {'gpus': 5}, UNKNOWN),
    'loadl': ('loadl', WHOLE, {}), 'loadl_small': ('loadl', SMALL, {'default_queue': ''}),
    'cobalt': ('cobalt', WHOLE | {'memory': 0}, RICH),
    'condor': ('condor', WHOLE | {'memory': 0, 'queue': 'vanilla'}, {}),
}

ADAPTED = [name for name in CASES if name.partition('_')[0] in ('torque', 'loadl', 'cobalt', 'condor')]
"""Those that radical.saga submits."""


def requested(name: str) -> tuple[str, JobRequest]:
    """The URL of a case, and the request to the batch system."""
    system, pilot, platform = CASES[name]
    url = f'{system}://localhost/' + ('?memreqs=h_vmem~0.5virtual_free' if system == 'sge' else '')
    definition = ResourceConfig(PLATFORM | {'job_manager_endpoint': url} | platform)
    description = PilotDescription({'resource': 'site.machine', 'uid': 'pilot.0000'} | pilot)
    description.verify()
    return url, job_request(description, definition, SANDBOX, ['/bin/sh', f'{SANDBOX}/bootstrap_0.sh'],
                            {'RP_PILOT_SANDBOX': SANDBOX})
