"""The state of a queue of the application: acceptance, delivery, acknowledgement, and peers that are lost."""

from __future__ import annotations

from collections import Counter
from random import Random

from rp_agent.app_comm.broker import Delivery, MessageQueue

A, B, C, D = b'a', b'b', b'c', b'd'


def test_each_message_goes_to_the_getter_that_waits_longest() -> None:
    queue = MessageQueue()
    assert queue.put(A, 1, b'1')
    assert queue.put(A, 2, b'2')
    assert queue.deliver() is None
    queue.get(B, 1)
    queue.get(C, 7)
    assert queue.deliver() == Delivery(B, 1, b'1')
    assert queue.deliver() == Delivery(C, 7, b'2')
    assert queue.deliver() is None
    assert len(queue) == 0


def test_a_repeated_request_changes_nothing() -> None:
    queue = MessageQueue()
    assert queue.put(A, 1, b'1')
    assert queue.put(A, 1, b'1')
    assert len(queue) == 1
    assert queue.get(B, 1) is None
    sent = queue.deliver()
    assert queue.get(B, 1) == sent
    assert queue.get(B, 2) is None, 'the next request acknowledges the message'
    queue.lost(B)
    assert len(queue) == 0


def test_a_message_of_a_lost_getter_goes_to_the_next_one_first() -> None:
    queue = MessageQueue()
    queue.put(A, 1, b'1')
    queue.put(A, 2, b'2')
    queue.get(B, 1)
    queue.deliver()
    queue.get(C, 1)
    queue.lost(B)
    assert queue.deliver() == Delivery(C, 1, b'1')
    queue.got(C, 1)
    queue.lost(C)
    assert len(queue) == 1
    assert queue.peers == set()


def test_a_full_queue_refuses_messages_until_it_has_room() -> None:
    queue = MessageQueue(max_messages=4)
    assert all(queue.put(A, number, b'') for number in range(1, 5))
    assert not queue.put(A, 5, b'')
    assert not queue.put(B, 1, b'')
    assert queue.have_room() == []
    queue.get(C, 1)
    queue.deliver()
    assert queue.have_room() == [(A, 5), (B, 1)]
    assert queue.have_room() == []
    assert queue.put(B, 1, b'')
    assert not queue.put(A, 5, b'')


def test_bytes_are_limited_and_an_empty_queue_accepts_a_message_of_any_size() -> None:
    queue = MessageQueue(max_bytes=10)
    assert queue.put(A, 1, b'x' * 100)
    assert not queue.put(B, 1, b'x')
    queue.get(C, 1)
    queue.deliver()
    assert queue.put(B, 1, b'x' * 5)
    assert queue.put(B, 2, b'x' * 5)
    assert not queue.put(B, 3, b'x')


def test_a_request_is_cancelled_unless_its_answer_is_on_its_way() -> None:
    queue = MessageQueue(max_messages=1)
    queue.get(B, 1)
    assert queue.cancel(B, 1)
    assert queue.put(A, 1, b'1')
    assert queue.deliver() is None
    assert not queue.cancel(A, 1)
    assert not queue.put(A, 2, b'2')
    assert queue.cancel(A, 2)
    queue.get(B, 2)
    queue.deliver()
    assert not queue.cancel(B, 2)
    assert queue.have_room() == []


def test_a_cancelled_message_is_not_accepted_later() -> None:
    """The putter may have sent it again before it cancelled."""
    queue = MessageQueue(max_messages=1)
    assert queue.put(A, 1, b'one')
    assert not queue.put(B, 1, b'two')
    assert queue.cancel(B, 1)
    queue.get(C, 1)
    assert queue.deliver() == (C, 1, b'one')
    assert queue.put(B, 1, b'two')
    assert len(queue) == 0


def test_only_putters_whose_message_fits_are_told_of_room() -> None:
    queue = MessageQueue(max_bytes=100)
    for message in (b'x' * 40, b'x' * 60):
        assert queue.put(A, len(message), message)
    assert not queue.put(B, 1, b'x' * 70)
    assert not queue.put(C, 1, b'x' * 30)
    queue.get(D, 1)
    assert queue.deliver() == (D, 1, b'x' * 40)
    assert queue.have_room() == [(C, 1)]
    queue.get(D, 2)
    assert queue.deliver() == (D, 2, b'x' * 60)
    assert queue.have_room() == [(B, 1)]


def test_no_message_is_lost_or_doubled_in_a_random_sequence() -> None:
    random = Random(7)
    queue = MessageQueue(max_messages=5)
    put: Counter[bytes] = Counter()
    received: Counter[bytes] = Counter()
    numbers = {bytes([peer]): 0 for peer in range(6)}
    for _ in range(20_000):
        peer = bytes([random.randrange(6)])
        numbers[peer] += 1
        message = peer + str(numbers[peer]).encode()
        if peer < b'\x03':
            if queue.put(peer, numbers[peer], message):
                put[message] += 1
            else:
                assert queue.cancel(peer, numbers[peer])
        else:
            queue.get(peer, numbers[peer])
            while (delivery := queue.deliver()) is not None:
                if random.random() < 0.2:
                    queue.lost(delivery.getter)
                else:
                    queue.got(delivery.getter, delivery.number)
                    received[delivery.message] += 1
    while queue.get(b'last', sum(received.values()) + 1) is None and (rest := queue.deliver()) is not None:
        received[rest.message] += 1
    assert received == put
    assert set(put.values()) == {1}
