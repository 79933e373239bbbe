"""The MPI job of a worker's carriers, which the first manager starts, and starts again when it ends."""

from __future__ import annotations

from collections.abc import Callable

from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop, Timer
from rp_raptor.worker.job_process import EXIT, JobProcess, load_command, noted_ends
from rp_raptor.worker.rank_processes import STARTS, how_it_ended

CARRIERS_START_TIMEOUT = 120.0
"""Seconds for the carriers to start."""

_LOOK_INTERVAL_S = 1.0   # between looks for ended carriers, which launchers may not notice
_PAUSE_S = 0.5   # before the job is started again, for each start in vain
_FIRST_PAUSE_S = 0.1   # or if there was none, for connections of the ended carriers to be lost


class CarrierJob:
    """The job whose command is in the file at `path`, one carrier for each of the nodes.

    `told(reason)` is called when the job has ended and is started again, `failed(reason)` once, if that is in vain.
    """

    def __init__(self, loop: Loop, path: str, nodes: int, told: Callable[[str], object],
                 failed: Callable[[str], object]) -> None:
        self._loop = loop
        self._path = path
        self._nodes = nodes
        self._told = told
        self._failed = failed
        self._process: JobProcess | None = None
        self._notes = ''
        self._works = self._finishing = False
        self._vain = 0   # starts one after the other
        self._timer: Timer = loop.call_later(0, self._start)
        self._looking: Timer | None = None

    def works(self) -> None:
        """Note that the carriers reach a manager."""
        if self._process is not None and not self._works:   # else those that have ended: a connection is lost late
            self._works = True
            self._timer.cancel()   # for the start

    def finish(self) -> None:
        """Do not start the carriers again."""
        self._finishing = True
        self._stop_looking()
        self._timer.cancel()

    def close(self, orderly: bool) -> None:
        """End the carriers, which end by themselves when no manager is connected."""
        self._timer.cancel()
        self._stop_looking()
        if self._process is not None:
            if orderly:
                self._process.wait(EXIT)
            self._process.end_now()
            self._process.reap()
            self._process = None

    def _start(self) -> None:
        try:
            command = load_command(self._path)
            self._notes = command.notes
            self._process = JobProcess(self._loop, command, self._ended)
        except (CoordinationError, OSError) as error:
            self._failed(str(error))
            return
        self._timer = self._loop.call_later(CARRIERS_START_TIMEOUT, self._give_up)
        self._look()

    def _look(self) -> None:
        """End the job of a dead carrier if its launcher does not."""
        if self._process is not None and noted_ends(self._notes, self._nodes):
            self._process.end()
        else:
            self._looking = self._loop.call_later(_LOOK_INTERVAL_S, self._look)

    def _stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _ended(self) -> None:
        assert self._process is not None
        self._stop_looking()
        code = self._process.reap()
        self._process = None
        self._timer.cancel()
        if self._finishing:
            return
        noted = noted_ends(self._notes, self._nodes)
        reason = f'the carrier of part {noted[0][0]} {how_it_ended(noted[0][1])}' if noted else (
            f'the MPI job of the carriers {how_it_ended(code)}')
        self._vain = 0 if self._works else self._vain + 1
        self._works = False
        if self._vain >= STARTS:
            self._failed(f'{reason}, {STARTS} times in vain')
        else:
            self._told(reason)
            self._timer = self._loop.call_later(_PAUSE_S * self._vain or _FIRST_PAUSE_S, self._start)

    def _give_up(self) -> None:
        self.close(orderly=False)
        self._failed(f'no carriers have started within {CARRIERS_START_TIMEOUT:g} s')
