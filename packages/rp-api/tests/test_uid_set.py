"""A set of uids: exact, whatever they look like, and small for those that are numbered."""

from __future__ import annotations

import random
import sys

from rp_api.uid_set import UidSet

UIDS = ['', '0', '7', '00', '000', '0000', 'task.000000', 'task.000001', 'task.1', 'task.001', 'task.0001', 'task.999',
        'task.1000', 'task.01000', 'x', 'task', 'abcd', 'task.00a', 'task.\u0660\u0661\u0662', 'task.0\u00b2\u00b3',
        'a001', 'b001', '123456789012345678901234567890']


def test_uids_are_told_apart() -> None:
    uids = UidSet()
    for index, uid in enumerate(UIDS):
        assert uid not in uids
        assert uids.add(uid), uid
        assert not uids.add(uid), uid
        assert [other in uids for other in UIDS] == [True] * (index + 1) + [False] * (len(UIDS) - index - 1)


def test_uids_are_a_set() -> None:
    chosen = random.Random(1)
    uids, model = UidSet(), set()
    for _ in range(20_000):
        uid = chosen.choice(('task.{:06d}', 'x{}', 'bag.{:04d}.tail')).format(chosen.randrange(5000))
        assert (uid in uids) == (uid in model)
        assert uids.add(uid) == (uid not in model)
        model.add(uid)


def test_many_are_added_at_once() -> None:
    chosen = random.Random(2)
    uids, model = UidSet(), set()
    for _ in range(500):
        first, form = chosen.randrange(5000), chosen.choice(('task.{:06d}', '{:03d}', 'x{}', 'bag.{:04d}.tail'))
        bulk = [form.format(number) for number in range(first, first + chosen.randrange(40))]
        bulk += chosen.choices(UIDS, k=chosen.randrange(4))
        expected = []
        for uid in bulk:
            expected.append(uid not in model)
            model.add(uid)
        assert uids.add_each(bulk) == expected
    assert all(uid in uids for uid in model)


def test_many_numbered_uids_take_little_memory() -> None:
    uids = UidSet()
    for number in range(100_000):
        uids.add(f'task.{number:06d}')
    kept = uids._numbered
    assert sum(sys.getsizeof(key) + sys.getsizeof(bits) for key, bits in kept.items()) < 100_000
