"""condor_submit, condor_q, condor_rm, condor_history, condor_vacate, condor_version of HTCondor.

Formats: HTCondor manual, version 9 (command reference, job ClassAd attributes, submit description files).
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from stand_ins import jobs
from stand_ins.jobs import ENDED, RUNNING, Job

UNIVERSES = ('vanilla', 'scheduler', 'local', 'grid', 'java', 'vm', 'parallel', 'docker', 'container')


def environ(job: Job, system: str) -> dict[str, str]:
    """What a job finds in its environment."""
    return {'_CONDOR_JOB_IWD': job.directory, '_CONDOR_SLOT': 'slot1', '_CONDOR_JOB': str(job.id)}


def condor_submit(arguments: list[str], system: str) -> int:
    """Submit the job of the submit description file that is named last."""
    text = Path(arguments[-1]).read_text()
    values = {key.strip(): value.strip() for key, value in re.findall(r'^(\w+) *= *(.*)$', text, re.MULTILINE)}
    arguments = shlex.split(values['arguments'].strip('"').replace('""', '"'))
    job = Job(name=Path(values['executable']).name, directory=values.get('initialdir', str(Path.cwd())),
              stdout=values.get('output', ''), stderr=values.get('error', ''))
    job.environ = dict(pair.split('=', 1) for pair in re.findall(r'"(.*?)"', values.get('environment', '')))
    job.queue = values.get('universe', 'vanilla')
    if job.queue not in UNIVERSES:
        raise jobs.RefusedError(f"I don't know about the '{job.queue}' universe.")
    script = ' '.join(map(shlex.quote, [values['executable'], *arguments]))
    done = jobs.submit(job, f'exec {script}\n')
    print(f'\n** Proc {done.id}.0:\nArguments = {values["arguments"]}\nCmd = "{values["executable"]}"\n'
          f'Iwd = "{job.directory}"\nJobStatus = 1\nOwner = "{job.owner}"')
    return 0


def condor_q(arguments: list[str], system: str) -> int:
    """Tell about jobs that have not ended."""
    for job in _named(arguments):
        if job.state != ENDED:
            if 'Iwd' in arguments:
                print(job.id, 0, job.directory)
                continue
            state = 2 if job.state == RUNNING else 1
            print(f'{job.id}, 0, {state}, ' if '-autoformat:,' in arguments else
                  f'{job.id}.0   {job.owner}  {jobs.clock(job.submitted, "%m/%d %H:%M")}  {job.name}')
    return 0


def condor_history(arguments: list[str], system: str) -> int:
    """Tell about jobs that have ended; one that was removed in the queue has no exit code."""
    for job in _named(arguments):
        if job.state == ENDED:
            code = 'undefined' if job.exit_code is None else job.exit_code
            print(f'{job.id}, 0, {3 if job.cancelled else 4}, {code}')
    return 0


def _named(arguments: list[str]) -> list[Job]:
    names = [text for text in arguments if re.fullmatch(r'\d+\.\d+', text)]
    return [job for job in jobs.everything() if not names or f'{job.id}.0' in names]


def condor_rm(arguments: list[str], system: str) -> int:
    """End a job."""
    name = arguments[-1]
    if jobs.cancel(int(name.partition('.')[0])):
        print(f'All jobs in cluster {name.partition(".")[0]} have been marked for removal')
        return 0
    print(f"Couldn't find/remove all jobs matching constraint (ClusterId == {name})", file=sys.stderr)
    return 1


def condor_vacate(arguments: list[str], system: str) -> int:
    """There is nothing to vacate."""
    return 0


def condor_version(arguments: list[str], system: str) -> int:
    """The version."""
    print('$CondorVersion: 9.0.17 Sep 29 2022 $\n$CondorPlatform: x86_64_Debian11 $')
    return 0


PROGRAMS = {'condor_submit': condor_submit, 'condor_q': condor_q, 'condor_rm': condor_rm,
            'condor_history': condor_history, 'condor_vacate': condor_vacate, 'condor_version': condor_version}
