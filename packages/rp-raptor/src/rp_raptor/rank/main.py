"""The program of a rank: makes the worker object, whose class a file or the worker's description names, and runs it."""

from __future__ import annotations

from rp_api.errors import PilotError
from rp_api.system import signals
from rp_raptor.loading import load_class
from rp_raptor.rank.capture import traceback_of
from rp_raptor.rank.process_end import end_processes, end_with_threads, exit_code, send_by_value
from rp_raptor.rank.rank import connect
from rp_raptor.rank.worker import Worker


def main() -> int:
    """Run a rank of the worker that the environment describes; return the exit code, or end with it."""
    signals.set_defaults()
    try:
        code = _run()
    except BaseException as error:
        code = exit_code(error)
    end_processes()
    end_with_threads(code)
    return code


def _run() -> int:
    rank = connect()
    try:
        kind = load_class(rank.run.file, rank.run.class_name, Worker)
        worker = kind(rank.run.master)
        worker.start()
    except PilotError as error:
        rank.fail(str(error))
        return 1
    except Exception as error:
        rank.fail(f'{rank.run.class_name} cannot be made: {error!r}\n{traceback_of(error)}')
        return 1
    send_by_value()
    worker.join()
    return 0
