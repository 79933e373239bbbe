"""Prints what radical.saga's adaptors run to submit pilots, as JSON. They leave threads behind, so it is a program.

    python saga_submitted.py NAME ...    NAME is a case of `job_cases.py`
"""

from __future__ import annotations

import base64
import json
import re
import sys

from job_cases import requested

from rp_api.errors import PlatformError
from rp_client.launcher.batch.saga.service import SagaService
from rp_client.launcher.batch.shell import Shell, ShellResult
from rp_client.launcher.batch.systems.base import Adapted
from rp_client.launcher.batch.systems.registry import batch_system

WHICH = ('which', 0, '/usr/bin/it\n')

# what the batch systems answer: to commands with this text, this exit code and this output
ANSWERS = {
    'torque': [('pcpus)', 0, '     np = 64\n'), ('which aprun', 1, ''), WHICH,
               ('--version', 0, 'Version: 6.1.2\nCommit: 661e092552de\n'), ('SCRIPTFILE', 0, '42.server\n')],
    'loadl': [WHICH, ('SCRIPTFILE', 0, 'llsubmit: The job "login.42" has been submitted.\n'), (' -v', 0, 'llq 5.1\n')],
    'cobalt': [WHICH, ('--version', 0, 'version: "qsub.py 1.0"\n'), ('mktemp', 0, '/home/me/script\n'),
               ('--mode script', 0, '42\n')],
    'condor': [('which', 0, '/usr/bin/it\n' * 6), ('-verbose', 0, '** Proc 42.0:\n')],
}


class Answering(Shell):
    """Takes the place of the shell: gives the answers of a batch system, and keeps what it was asked."""

    def __init__(self, url: str, answers: list[tuple[str, int, str]]) -> None:
        super().__init__(url)
        self.seen: list[str] = []
        self._answers = answers

    def run(self, script: str, timeout: float = 0) -> ShellResult:
        self.seen.append(script)
        return next((ShellResult(code, out) for part, code, out in self._answers if part in script), ShellResult(0, ''))


def submitted(name: str) -> list[str]:
    """The commands that submit the pilot of a case, with what is different each time taken out."""
    url, request = requested(name)
    system = batch_system(url)
    assert isinstance(system, Adapted)
    shell = Answering(url, ANSWERS[name.partition('_')[0]])
    service = SagaService(url, shell)
    shell.seen.clear()
    try:
        job = service.submit(system.description(request), system.amendments(request))
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
