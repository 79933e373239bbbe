"""The profiles of a session that the application's process writes."""

from __future__ import annotations

from pathlib import Path

from rp_client.engine.engine import Engine
from rp_profiling.write.detail import chosen
from rp_profiling.write.host_clock import HostClock, Reading
from rp_profiling.write.tracer import Tracer

FLUSH = 1.0
"""Seconds after which what was recorded is in the files: an application that is killed loses no more than that."""


class Traces:
    """Makes the tracers of a session, whose profiles are in a directory, and has them written from time to time."""

    def __init__(self, session: str, directory: str, engine: Engine) -> None:
        self._directory = Path(directory)
        self._engine = engine
        self._clock = HostClock()
        self._made: list[Tracer] = []
        self.own = self.make(session)
        """The tracer of the session itself."""

    def make(self, name: str) -> Tracer:
        """A tracer of that name."""
        tracer = Tracer(self._directory / f'{name}.prof', name, clock=self._clock, detail=chosen(name=name))
        self._made.append(tracer)
        return tracer

    def start(self) -> None:
        """From now on, have what is recorded written."""
        self._engine.call(self._flush)

    def close(self) -> None:
        """Close all profiles; those of components which could not do so, as the session was broken, have no end."""
        self.own.close()
        for tracer in self._made:
            tracer.break_off()

    def discard(self) -> None:
        """Write nothing of what was recorded."""
        for tracer in self._made:
            tracer.enabled = False

    def _flush(self) -> None:
        self._made = [tracer for tracer in self._made if tracer.enabled]
        for tracer in self._made:
            tracer.flush()
        self._engine.loop.call_later(FLUSH, self._flush)

    def read_clock(self, reading: Reading) -> None:
        """Take in how the clock of the coordinator's host runs."""
        moment = self._clock.read(reading)
        if moment:
            self.own.relate(moment.message, moment.here, self.own.comp)
            self._engine.connection.tell_moment(moment)
