"""Runs a program of a batch system: `python main.py SYSTEM PROGRAM ARGUMENTS`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

MODULES = {'pbspro': 'pbs', 'torque': 'pbs', 'lsf': 'lsf', 'cobalt': 'cobalt', 'loadl': 'loadleveler',
           'condor': 'condor', 'flux': 'flux'}


def main() -> int:
    """Run the program; what the batch system refuses is an error, as it says it."""
    system, program, *arguments = sys.argv[1:]
    os.environ['RP_STAND_IN_SYSTEM'] = system
    module = importlib.import_module(f'stand_ins.{MODULES[system]}')
    from stand_ins import jobs

    if program == 'run':
        _run(int(arguments[0]), system, module)
        return 0
    try:
        return int({'checkjob': getattr(module, 'checkjob', None), **module.PROGRAMS}[program](arguments, system))
    except jobs.RefusedError as refused:
        print(f'{program}: {refused}', file=sys.stderr)
        return 1


def _run(number: int, system: str, module: object) -> None:
    from stand_ins import jobs

    job = jobs.load(number)
    if job:
        jobs.run(number, module.environ(job, system))   # type: ignore[attr-defined]
        done = jobs.load(number)
        if done and done.exit_code is not None and hasattr(module, 'ended'):
            module.ended(done)


if __name__ == '__main__':
    sys.exit(main())
