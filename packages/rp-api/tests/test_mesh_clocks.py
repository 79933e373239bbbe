"""How far a clock is ahead of that of a peer, from messages to and fro."""

from __future__ import annotations

from collections import deque

import pytest

from rp_api.transport import clocks
from rp_api.transport.clocks import INTERVAL, ROUNDS, ClockReader
from rp_profiling.write.host_clock import Reading

MS = 1_000_000


class Peer:
    """A peer whose clock is behind, reached over a way that takes its time; nothing here takes real time."""

    def __init__(self, patch: pytest.MonkeyPatch, ahead: int, delays: list[tuple[int, int]]) -> None:
        self.now = 10**18
        self.ahead = ahead
        self.delays = deque(delays)
        self.questions: list[int] = []
        self.found: list[Reading] = []
        patch.setattr(clocks, 'time_ns', lambda: self.now)
        patch.setattr(clocks, 'monotonic', lambda: self.now / 1e9)
        self.reader = ClockReader(self.questions.append, self.found.append)

    def answer_all(self) -> None:
        while self.questions:
            there, back = self.delays[0]
            self.delays.rotate(-1)
            self.now += there
            told = self.now - self.ahead
            self.now += back
            self.reader.answer(self.questions.pop(), told)


@pytest.mark.parametrize('ahead', [-3_600_000 * MS, 0, 5000 * MS + 1])
def test_the_fastest_answer_counts(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(monkeypatch, ahead, [(90 * MS, MS), (2 * MS, MS), (5 * MS, 50 * MS)])
    peer.reader.start()
    peer.answer_all()
    (reading,) = peer.found
    assert abs(reading.ahead - ahead) <= reading.within == 3 * MS // 2 + 1


def test_it_is_done_again_when_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(monkeypatch, 7 * MS, [(1000, 1000)])
    peer.reader.due()
    peer.answer_all()
    peer.reader.due()
    assert (len(peer.found), peer.questions) == (1, [])
    peer.now += int(INTERVAL * 1e9)
    peer.ahead = 9 * MS
    peer.reader.due()
    peer.answer_all()
    assert [reading.ahead for reading in peer.found] == [7 * MS, 9 * MS]


def test_what_got_lost_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(monkeypatch, 7 * MS, [(1000, 1000)])
    peer.reader.start()
    lost = peer.questions.pop()
    peer.now += 1000
    peer.reader.due()
    peer.reader.answer(lost, 0)   # after all, when nobody waits for it
    assert len(peer.questions) == 1
    peer.answer_all()
    peer.reader.answer(lost, 0)
    assert [reading.ahead for reading in peer.found] == [7 * MS]
    assert ROUNDS > 1
