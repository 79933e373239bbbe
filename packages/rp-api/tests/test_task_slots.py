"""The short form of the slots of tasks."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rp_api.task_info.slots import whole_slots, with_short_slots
from rp_api.wire import codec

DEVICES = st.lists(st.builds(lambda index, occupation: {'index': index, 'occupation': occupation},
                             st.integers(0, 300), st.sampled_from([1.0, 0.5, 0.25])), max_size=3)
SLOTS = st.lists(st.fixed_dictionaries({
    'node_name': st.text(), 'node_index': st.integers(0, 9999), 'cores': DEVICES, 'gpus': DEVICES,
    'lfs': st.integers(0, 1 << 30), 'mem': st.integers(0, 1 << 30), 'version': st.sampled_from([1, 1, 1, 2])}))


@given(SLOTS)
def test_slots_come_back_whole(slots: list[dict[str, Any]]) -> None:
    info = {'exit_code': 0, 'slots': slots}
    short = codec.unpack(codec.pack(with_short_slots(info)))
    assert short['exit_code'] == 0
    assert whole_slots(short['slots']) == slots
    assert info == {'exit_code': 0, 'slots': slots}


def test_other_slots_stay_as_they_are() -> None:
    odd = {'slots': [{'node_name': 'a'}, {'more': 1}]}
    assert with_short_slots(odd) == odd
    assert whole_slots(odd['slots']) == odd['slots']
    assert with_short_slots({'exit_code': 3}) == {'exit_code': 3}
    assert whole_slots(None) is None


def test_short_slots_are_short() -> None:
    slot = {'node_name': 'node-17', 'node_index': 17, 'cores': [{'index': 3, 'occupation': 1.0}], 'gpus': [], 'lfs': 0,
            'mem': 0, 'version': 1}
    assert 3 * len(codec.pack(with_short_slots({'slots': [slot]}))) < len(codec.pack({'slots': [slot]}))
