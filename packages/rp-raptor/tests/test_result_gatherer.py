"""Results of many small messages in one."""

from __future__ import annotations

from array import array

import pytest

from rp_raptor.wire.batch import Payloads
from rp_raptor.wire.call_buffer import MAX_GATHERED_BYTES, MAX_GATHERED_RESULTS, ResultGatherer
from rp_raptor.wire.protocol import BULK

Sent = list[tuple[list[int], list[bytes]]]


@pytest.fixture
def sent() -> Sent:
    return []


@pytest.fixture
def gatherer(sent: Sent) -> ResultGatherer:
    return ResultGatherer(lambda ids, payloads: sent.append((list(ids), list(payloads))))


def add(gatherer: ResultGatherer, *ids: int, size: int = 1) -> None:
    gatherer.add(array('Q', ids), Payloads([b'%d' % number * size for number in ids]))


def test_few_results_wait_for_others(gatherer: ResultGatherer, sent: Sent) -> None:
    gatherer.flush()
    add(gatherer, 5)
    add(gatherer, 3, 4)
    gatherer.add(array('Q', [9]), [b'9'])
    assert not sent
    gatherer.flush()
    gatherer.flush()
    assert sent == [([5, 3, 4, 9], [b'5', b'3', b'4', b'9'])]


def test_many_results_are_sent_at_once(gatherer: ResultGatherer, sent: Sent) -> None:
    add(gatherer, 1)
    add(gatherer, *range(MAX_GATHERED_RESULTS + 1))
    gatherer.flush()
    assert [len(ids) for ids, _ in sent] == [MAX_GATHERED_RESULTS + 1, 1]


def test_a_message_is_limited(gatherer: ResultGatherer, sent: Sent) -> None:
    for number in range(BULK):
        assert not sent
        add(gatherer, number)
    assert [len(ids) for ids, _ in sent] == [BULK]
    add(gatherer, 7, size=MAX_GATHERED_BYTES)
    gatherer.flush()
    assert [len(ids) for ids, _ in sent] == [BULK, 1]
