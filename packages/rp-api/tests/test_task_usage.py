"""Times and usage of tasks: their record, and what is made of it."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rp_api.task_info.usage import TaskTimes, TaskUsage, expanded, packed_run, times_of, usage_of

NOW = 1_795_949_250.123456
SECONDS = st.floats(0, 1e6)


@given(wait=SECONDS, duration=SECONDS, user=SECONDS, system=SECONDS, switches=st.integers(0, 1 << 24))
def test_a_record_holds_times_and_usage(wait: float, duration: float, user: float, system: float,
                                        switches: int) -> None:
    record = packed_run(NOW, NOW + wait, NOW + wait + duration, user, system, switches)
    assert len(record) == 28
    times = times_of({'ran': record}, 3.5)
    assert times.submitted == 3.5
    assert times.placed == NOW
    assert times.started == pytest.approx(NOW + wait, abs=0.1)
    assert times.duration == pytest.approx(duration, rel=1e-6, abs=1e-6)
    usage = usage_of({'ran': record})
    assert usage.switches == switches
    assert usage.cpu == pytest.approx(user + system, rel=1e-6, abs=2e-6)
    assert usage.memory is usage.read is usage.gpu is None


def test_what_is_not_known_is_none() -> None:
    placed = {'ran': packed_run(NOW)}
    assert times_of(placed) == TaskTimes(placed=NOW)
    assert usage_of(placed) == TaskUsage()
    running = {'ran': packed_run(NOW, NOW + 2)}
    assert times_of(running) == TaskTimes(placed=NOW, started=NOW + 2)
    assert times_of(running).duration is None
    unplaced = {'ran': packed_run(None, NOW, NOW + 2)}
    assert times_of(unplaced) == TaskTimes(started=NOW, ended=NOW + 2)
    assert (times_of(unplaced).duration, times_of(unplaced).waiting) == (2, None)
    assert times_of({}, NOW) == TaskTimes(submitted=NOW)
    assert TaskTimes(NOW, None, NOW + 3).waiting == 3


def test_all_records_have_the_same_size() -> None:
    """The hub writes many results of one size by one statement."""
    assert len({len(packed_run(*values)) for values in ((NOW,), (None, NOW), (NOW, NOW, NOW, 1e9, 1e9, 1e12))}) == 1


def test_readers_see_plain_data() -> None:
    info = {'exit_code': 0, 'ran': packed_run(NOW, NOW + 1, NOW + 3, 0.5, 0.25, 7), 'usage': {'memory': 1000, 'x': 1}}
    assert expanded(info) == {
        'exit_code': 0, 'times': [NOW, NOW + 1, NOW + 3],
        'usage': {'cpu': 0.75, 'user': 0.5, 'system': 0.25, 'memory': 1000, 'switches': 7}}
    assert expanded({'ran': packed_run(NOW)}) == {'times': [NOW, None, None]}
    assert expanded({'exit_code': 3}) == {'exit_code': 3}


@pytest.mark.parametrize('record', [b'', b'x' * 27, 'text', None, 3, struct.pack('<d5f', *(math.nan,) * 6),
                                    struct.pack('<d5f', *(math.inf,) * 6)])
@pytest.mark.parametrize('usage', [None, [], {'cpu': 1}, {1: 2}])
def test_records_of_a_broken_agent_do_no_harm(record: object, usage: object) -> None:
    info = {'ran': record, 'usage': usage}
    times_of(info)
    assert usage_of(info).switches is None
    expanded(info)
