"""Profiles that the application's process writes for a session."""

from __future__ import annotations

from pathlib import Path

from rp_client.engine.engine import Engine
from rp_profiling.write.detail import chosen
from rp_profiling.write.host_clock import HostClock, Reading
from rp_profiling.write.tracer import Tracer

FLUSH = 1.0
"""Seconds between two flushes, which bounds the events that a killed application loses."""


class Traces:
    """The tracers of a session, with their profiles in one directory, flushed periodically."""

    def __init__(self, session: str, directory: str, engine: Engine) -> None:
        self._directory = Path(directory)
        self._engine = engine
        self._clock = HostClock()
        self._made: list[Tracer] = []
        self.own = self.make(session)
        """The tracer of the session itself."""

    def make(self, name: str) -> Tracer:
        """Return a new tracer of that name."""
        tracer = Tracer(self._directory / f'{name}.prof', name, clock=self._clock, detail=chosen(name=name))
        self._made.append(tracer)
        return tracer

    def start(self) -> None:
        """Start the periodic flush."""
        self._engine.call(self._flush)

    def close(self) -> None:
        """Close all profiles; those of components that a broken session could not close have no end event."""
        self.own.close()
        for tracer in self._made:
            tracer.break_off()

    def discard(self) -> None:
        """Discard all recorded events."""
        for tracer in self._made:
            tracer.enabled = False

    def _flush(self) -> None:
        self._made = [tracer for tracer in self._made if tracer.enabled]
        for tracer in self._made:
            tracer.flush()
        self._engine.loop.call_later(FLUSH, self._flush)

    def read_clock(self, reading: Reading) -> None:
        """Process a reading of the coordinator's host clock."""
        moment = self._clock.read(reading)
        if moment:
            self.own.relate(moment.message, moment.here, self.own.comp)
            self._engine.connection.tell_moment(moment)
