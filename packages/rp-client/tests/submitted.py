"""Prints what radical.saga's adaptors run to submit pilots, as JSON. They leave threads behind, so it is a program.

    python submitted.py NAME ...    NAME is a case of `test_saga_scripts.py`
"""

from __future__ import annotations

import base64
import json
import re
import sys
from typing import Any

from rp_api.description.pilot import PilotDescription
from rp_api.errors import PlatformError
from rp_api.platforms.definition import ResourceConfig
from rp_client.launcher.saga.job import amendments, job_description
from rp_client.launcher.saga.service import SagaService
from rp_client.launcher.saga.shell import Result, Shell

SANDBOX = '/scratch/me/pilot.0000'
WHICH = ('which', 0, '/usr/bin/it\n')

# what the batch systems answer: to commands with this text, this exit code and this output
ANSWERS = {
    'slurm': [('whoami', 0, 'me\n'), ('scontrol --version', 0, 'slurm 22.05.8\n'), ('CPUTot', 0, '64\n'),
              ('sbatch /', 0, 'Submitted batch job 42\n')],
    'pbspro': [('pcpus)', 0, '     pcpus = 64\n'), ('which aprun', 1, ''), WHICH,
               ('--version', 0, 'pbs_version = 20.0.1\n'), ('SCRIPTFILE', 0, '42.server\n')],
    'torque': [('pcpus)', 0, '     np = 64\n'), ('which aprun', 1, ''), WHICH,
               ('--version', 0, 'Version: 6.1.2\nCommit: 661e092552de\n'), ('SCRIPTFILE', 0, '42.server\n')],
    'sge': [WHICH, ('-help', 0, 'SGE 8.1.9\n'), ('-spl', 0, 'MPI\nOpenMPI\n'),
            ('-sc', 0, '#name shortcut type relop requestable consumable default urgency\n'
                       'h_vmem h_vmem MEMORY <= YES NO 0 0\n'),
            ('SCRIPTFILE', 0, 'Your job 42 ("my_job") has been submitted\n')],
    'lsf': [('SCRIPTFILE', 0, 'Job <42> is submitted to queue <batch>.\n'), WHICH,
            (' -V', 0, 'IBM Spectrum LSF Standard 10.1.0.9\n')],
    'loadl': [WHICH, ('SCRIPTFILE', 0, 'llsubmit: The job "login.42" has been submitted.\n'), (' -v', 0, 'llq 5.1\n')],
    'cobalt': [WHICH, ('--version', 0, 'version: "qsub.py 1.0"\n'), ('mktemp', 0, '/home/me/script\n'),
               ('--mode script', 0, '42\n')],
    'condor': [('which', 0, '/usr/bin/it\n' * 6), ('-verbose', 0, '** Proc 42.0:\n')],
}

PLATFORM = {
    'label': 'site.machine', 'resource_manager': 'SLURM', 'cores_per_node': 64, 'gpus_per_node': 4,
    'default_queue': 'normal'}
WHOLE = {'nodes': 2, 'runtime': 90, 'queue': 'debug', 'project': 'abc', 'job_name': 'my job', 'memory': 4096}
SMALL = {'cores': 65, 'runtime': 5}
RICH = {'system_architecture': {'options': ['nvme', 'a=1'], 'exclusive': True, 'smt': 1, 'blocked_cores': [0]}}

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    'slurm': ('slurm', WHOLE | {'queue': 'debug:high', 'project': 'abc:res'}, {}),
    'slurm_rich': ('slurm', SMALL | {'gpus': 3}, RICH),
    'pbspro': ('pbspro', WHOLE, RICH), 'pbspro_small': ('pbspro', SMALL, {}),
    'torque': ('torque', WHOLE, RICH), 'torque_small': ('torque', SMALL, {}),
    'sge': ('sge', WHOLE, RICH), 'sge_small': ('sge', SMALL, {}),
    'lsf': ('lsf', WHOLE | {'project': 'abc:res'}, RICH),
    'lsf_jsrun': ('lsf', WHOLE, {'launch_methods': {'order': ['JSRUN']}} | RICH),
    'loadl': ('loadl', WHOLE, {}), 'loadl_small': ('loadl', SMALL, {'default_queue': ''}),
    'cobalt': ('cobalt', WHOLE | {'memory': 0}, RICH),
    'condor': ('condor', WHOLE | {'memory': 0, 'queue': 'vanilla'}, {}),
}


class Answering(Shell):
    """Takes the place of the shell: gives the answers of a batch system, and keeps what it was asked."""

    def __init__(self, url: str, answers: list[tuple[str, int, str]]) -> None:
        super().__init__(url)
        self.seen: list[str] = []
        self._answers = answers

    def run(self, script: str, timeout: float = 0) -> Result:
        self.seen.append(script)
        return next((Result(code, out) for part, code, out in self._answers if part in script), Result(0, ''))


def submitted(name: str) -> list[str]:
    """The commands that submit the pilot of a case, with what is different each time taken out."""
    system, pilot, platform = CASES[name]
    url = f'{system}://localhost/' + ('?memreqs=h_vmem' if system == 'sge' else '')
    definition = ResourceConfig(PLATFORM | {'job_manager_endpoint': url} | platform)
    description = PilotDescription({'resource': 'site.machine', 'uid': 'pilot.0000'} | pilot)
    description.verify()
    shell = Answering(url, ANSWERS[system])
    service = SagaService(url, shell)
    shell.seen.clear()
    wanted = job_description(description, definition, SANDBOX, ['/bin/sh', f'{SANDBOX}/bootstrap_0.sh'],
                             {'RP_PILOT_SANDBOX': SANDBOX})
    try:
        job = service.submit(wanted, amendments(description, definition))
    except PlatformError as error:
        return [*map(_plain, shell.seen), f'ERROR {error}']
    return [*map(_plain, shell.seen), f'JOB {job}']


def _plain(command: str) -> str:
    command = re.sub(r'tmp(_|-radical-saga-)\w+', r'tmp\1X', command)
    command = re.sub(r'qsub_time: [\d.]+', 'qsub_time: T', command)
    found = re.search(r"(<<'E_O_F'[^\n]*\n)(.*)E_O_F\n", command, re.DOTALL)
    if found:
        command = command.replace(found[2], base64.b64decode(found[2]).decode())
    return '\n'.join(line.rstrip() for line in command.splitlines())


if __name__ == '__main__':
    print(json.dumps({name: submitted(name) for name in sys.argv[1:]}))
