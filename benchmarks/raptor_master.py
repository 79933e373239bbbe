"""The master and the worker of `raptor.py`: the master makes calls of its own, notes their rate, and ends."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import radical.pilot as rp


def nothing(number: int) -> int:
    """The call."""
    return number


class Calls(rp.raptor.Master):
    """Makes `CALLS` calls on a worker of `RANKS` ranks."""

    def start(self) -> None:
        super().start()
        self.submit_workers(rp.TaskDescription({'mode': rp.RAPTOR_WORKER, 'ranks': int(os.environ['RANKS'])}))
        self.wait_workers()
        self._run(1000)
        count = int(os.environ['CALLS'])
        rate = count / self._run(count)
        Path(os.environ['RP_TASK_SANDBOX'], 'figures.json').write_text(json.dumps(rate))
        self.stop()

    def _run(self, count: int) -> float:
        """The seconds that so many calls take, results included."""
        begin = time.monotonic()
        assert sum(call.result() for call in self.stream(nothing, range(count))) == count * (count - 1) // 2
        return time.monotonic() - begin


class Functions(rp.raptor.DefaultWorker):
    """A worker with the function of this file."""
