"""The programs `radical-pilot-raptor-master FILE CLASS` and `radical-pilot-raptor-worker FILE CLASS RAPTOR_ID`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from rp_api import distributions
from rp_api.errors import PilotError
from rp_api.raptor_link import CARRIER, RUN
from rp_api.system import limits, signals

MASTER_USAGE = 'usage: radical-pilot-raptor-master FILE CLASS   (FILE may be empty: a class of radical.pilot.raptor)'


def master(arguments: Sequence[str] | None = None) -> int:
    """Run a master until it ends, and return the exit code."""
    signals.set_defaults()
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 2:
        print(MASTER_USAGE, file=sys.stderr)
        return 2
    from rp_raptor.loading import load_class
    from rp_raptor.master.master import Master

    _start_log()
    try:
        distributions.check_upstream()
        limits.raise_descriptors()   # each worker has a connection
        raptor = load_class(arguments[0], arguments[1], Master)()
        try:
            raptor.start()
            raptor.join()
        finally:
            raptor.stop()
            raptor.join()
    except PilotError as error:
        print(f'radical-pilot-raptor-master: {error}', file=sys.stderr)
        return 1
    return 0


def worker(arguments: Sequence[str] | None = None) -> int:
    """Run the manager of a worker, a carrier or a rank until it ends, and return the exit code."""
    _start_log()
    if CARRIER in os.environ:   # the launchers of MPI jobs over several nodes start carriers and ranks by this command
        from rp_raptor.carriers.carrier import main as carrier

        return carrier()
    if RUN in os.environ:
        from rp_raptor.rank.main import main as rank

        return rank()
    from rp_raptor.worker.manager import main

    return main(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program named by the first argument: `python -m rp_raptor.cli master|worker ...`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    program = {'master': master, 'worker': worker}.get(arguments[0] if arguments else '')
    if program is None:
        print('usage: python -m rp_raptor.cli master FILE CLASS | worker FILE CLASS RAPTOR_ID', file=sys.stderr)
        return 2
    return program(arguments[1:])


def _start_log() -> None:
    """Log to standard error at the level of RADICAL_PILOT_LOG_LVL (default: warnings)."""
    level = logging.getLevelName(os.environ.get('RADICAL_PILOT_LOG_LVL', '').upper().partition('_')[0])
    logging.basicConfig(format='%(asctime)s %(levelname)s %(name)s %(message)s',
                        level=level if isinstance(level, int) else logging.WARNING)


if __name__ == '__main__':
    sys.exit(main())
