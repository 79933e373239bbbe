"""Described tasks that pass a master closed: what workers are told of them, and what the agent gets back."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from rp_api import constants as c
from rp_api import states
from rp_api.errors import CoordinationError
from rp_api.wire import codec
from rp_raptor.master.passthrough import MAX_UNUSED_PARTS, PART_MAX_BYTES, Passthrough, SharedDescriptions
from rp_raptor.master.router import CallRouter
from rp_raptor.master.worker_pool import PooledWorker
from rp_raptor.wire import payload

FUNCTION = {'mode': c.TASK_FUNCTION, 'function': 'f'}


class Bench:
    """A router with one worker that takes all calls, and an agent that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[list[Any]] = []
        self.results_of: dict[str, Any] = {}
        self.router = CallRouter(lambda address, message: self.told.append(message), 1)
        self.passthrough = Passthrough(self.router, self, lambda: None)
        self.worker = PooledWorker(b'worker', 'worker.0', 2, mpi=True)
        self.router.attach(self.worker)
        self.router.credit(self.worker, 10_000)
        self.executing: list[str] = []
        self.given_back: list[list[str]] = []

    def send(self, *message: Any) -> None:
        operation, state, uids = message
        assert (operation, state) == ('states', states.AGENT_EXECUTING)
        self.executing += uids

    def results(self, uids: Any, results: Any) -> None:
        assert not self.results_of.keys() & set(uids)
        self.results_of.update(zip(uids, results, strict=True))

    def returned(self, uids: Any) -> None:
        self.given_back.append(list(uids))

    def take(self, **descriptions: dict[str, Any]) -> list[int]:
        """Tasks come, each with its uid as the name of the argument, and are dealt."""
        common, rests = codec.pack_bulk(list(descriptions.values()))
        left = self.passthrough.take(common, list(descriptions), [f'/pilot/{uid}' for uid in descriptions], rests)
        self.router.deal()
        return left

    def calls(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """What the worker has, by uid: the number of the call, and the description."""
        parts = {message[1]: message[2] for message in self.told if message[0] == 'define'}
        found = {}
        for number, held in self.worker.calls.items():
            call = held.of(number)
            uid, sandbox, rest = payload.decode_alike(call)
            assert sandbox == f'/pilot/{uid}'
            description, = codec.unpack_bulk(parts[payload.fid_of(call)], [rest])
            found[uid] = number, description
        return found

    def done(self, uid: str, result: bytes) -> None:
        """The worker is done with a task."""
        self.router.results(self.worker, array('Q', [self.calls()[uid][0]]), [result])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_is_common_is_told_once(bench: Bench) -> None:
    bench.take(a=FUNCTION, b=FUNCTION | {'args': [1]})
    bench.take(c=FUNCTION, d=FUNCTION)
    assert {uid: description for uid, (_, description) in bench.calls().items()} == {
        'a': FUNCTION, 'b': FUNCTION | {'args': [1]}, 'c': FUNCTION, 'd': FUNCTION}
    assert [message[0] for message in bench.told] == ['define', 'calls', 'calls']
    assert bench.executing == ['a', 'b', 'c', 'd']
    assert len(bench.passthrough) == 4


def test_results_go_back_as_they_come(bench: Bench) -> None:
    bench.take(a=FUNCTION, b=FUNCTION, c=FUNCTION)
    bench.done('a', payload.encode_success(3))
    bench.done('b', payload.encode_result({'exit_code': 2, 'stdout': 'out', 'stderr': None}))
    bench.done('c', payload.encode_error(ValueError('no')))
    assert codec.unpack(bench.results_of.pop('a')) == {'exit_code': 0, 'return_value': 3}
    assert bench.results_of.pop('b') == {'exit_code': 2, 'stdout': 'out', 'target_state': states.FAILED}
    assert bench.results_of.pop('c')['exception'] == "ValueError('no')"
    assert not bench.results_of
    assert not len(bench.passthrough)


def test_needs_of_calls(bench: Bench) -> None:
    """Those that all have in common, and those that one has."""
    bench.take(a=FUNCTION | {'timeout': 3}, b=FUNCTION | {'timeout': 3, 'ranks': 2})
    attributes = [message[3] for message in bench.told if message[0] == 'calls']
    numbers = {number: uid for uid, (number, _) in bench.calls().items()}
    assert {numbers[number]: needs for each in attributes for number, needs in each.items()} == {
        'a': {'timeout': 3}, 'b': {'timeout': 3, 'ranks': 2}}


@pytest.mark.parametrize('together', [True, False])
def test_what_is_not_for_workers_is_left_to_others(bench: Bench, together: bool) -> None:
    program = {'mode': c.TASK_EXECUTABLE, 'executable': '/bin/true'}
    if together:
        assert bench.take(a=FUNCTION, x=program, b=FUNCTION) == [1]
        assert sorted(bench.calls()) == ['a', 'b']
    else:
        assert bench.take(x=program, y=program) == [0, 1]
        assert not bench.calls()


def test_cancelled(bench: Bench) -> None:
    """What a worker has is cancelled there; what waits has its result at once."""
    bench.router.credit(bench.worker, 1 - bench.worker.free)
    bench.take(a=FUNCTION, b=FUNCTION)
    bench.passthrough.cancel(['a', 'b', 'elsewhere'])
    assert bench.told[-1][0] == 'cancel'
    assert bench.results_of['b']['target_state'] == states.CANCELED
    bench.done('a', payload.encode_success(None))
    assert bench.results_of['a'] == codec.pack({'exit_code': 0})
    bench.passthrough.cancel(['a', 'b'])


def test_tasks_for_any_master_are_given_back(bench: Bench) -> None:
    bench.worker.free = 3
    bench.take(mine=FUNCTION | {'raptor_id': 'raptor.0'})
    bench.take(**{f'any.{number}': FUNCTION | {'raptor_id': '*'} for number in range(5)})
    bench.passthrough.give_back(2)
    assert bench.given_back == [['any.3', 'any.4']]
    assert len(bench.passthrough) == 4
    bench.passthrough.give_back(9)
    assert bench.told[-1] == ['give_back', 1]
    bench.router.returned(bench.worker, list(bench.worker.calls)[:1])   # that of the one that is for this master
    assert bench.given_back[1:] == [['any.2']]
    bench.passthrough.cancel(['any.0'])
    assert [message[0] for message in bench.told[-1:]] == ['cancel']
    bench.passthrough.close()
    bench.passthrough.give_back(1)


def test_malformed_tasks_change_nothing(bench: Bench) -> None:
    for common, rest in ((b'\x01', codec.NOTHING), (codec.pack(FUNCTION), b'\x01')):
        with pytest.raises(CoordinationError, match='malformed'):
            bench.passthrough.take(common, ['a'], ['/'], [rest])
    assert not len(bench.passthrough)
    assert not bench.told


def test_parts_stay_for_those_who_come_next() -> None:
    defined: list[bytes] = []
    forgotten: list[bytes] = []
    parts = SharedDescriptions(lambda fid, data: defined.append(data), forgotten.append)
    held = [parts.hold(b'%d' % number, 2) for number in range(MAX_UNUSED_PARTS)]
    for part in held:
        parts.rest(part)
    assert parts.hold(b'0', 1) is held[0]   # it is in use again
    assert len(defined) == MAX_UNUSED_PARTS
    for name in (b'x', b'y'):
        parts.rest(parts.hold(name, 1))
    assert forgotten == [held[1].fid]   # the one that was not needed for the longest time
    large = parts.hold(b'large' * PART_MAX_BYTES, 1)
    parts.rest(large)
    assert forgotten == [held[1].fid, large.fid]
