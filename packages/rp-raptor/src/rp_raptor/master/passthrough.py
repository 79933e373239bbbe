"""Described tasks that a master forwards without reading them.

They arrive from the agent in bulks of similar tasks and go to workers, which know the shared part; results are
forwarded in the same way. All methods run in the loop's thread.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import repeat
from typing import Any, Protocol

from rp_api import states
from rp_api.errors import sentence
from rp_api.raptor_link import ANY, RESULT, target_state
from rp_api.wire import codec
from rp_raptor.master.router import CallRouter
from rp_raptor.wire.payload import FID_BYTES, as_result, encode_alike, packed_success
from rp_raptor.wire.requirements import DECISIVE, is_for_agent, needs_of

MAX_UNUSED_PARTS = 16
"""Unused parts that stay with the workers, as later tasks may have the same part."""

PART_MAX_BYTES = 64 << 10
"""Bytes at which a part is too large to stay."""


class Agent(Protocol):
    """The connection to the agent."""

    def send(self, *message: Any) -> None:
        """Send a message; see `rp_api.raptor_link`."""

    def results(self, uids: Sequence[str], results: Sequence[dict[str, Any] | bytes]) -> None:
        """Send results of tasks."""

    def returned(self, uids: Sequence[str]) -> None:
        """Return tasks that the agent has asked back."""


class Passthrough:
    """The forwarded tasks without a result; a source of calls."""

    def __init__(self, router: CallRouter, agent: Agent, changed: Callable[[], object]) -> None:
        self._router = router
        self._source = router.open(self)
        self._for_any = router.open(self)   # of the tasks for any master, which the agent may ask back
        self._agent = agent
        self._changed = changed
        self._shared = SharedDescriptions(partial(router.define, self._source), partial(router.forget, self._source))
        self._tasks: dict[int, tuple[str, SharedDescription]] = {}   # by number of the call
        self._numbers: dict[str, int] = {}              # of calls, by uid
        self._next = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, uid: object) -> bool:
        return uid in self._numbers

    def take(self, common: bytes, uids: Sequence[str], sandboxes: Sequence[str], rests: Sequence[bytes]) -> list[int]:
        """Run similar tasks (see `rp_api.raptor_link`); return the positions of those that workers cannot run."""
        first, others = self._next, []
        attributes = {}
        described = codec.unpack_dict(common)
        for position, requirements in enumerate(_requirements(described, rests)):
            if requirements is None:
                others.append(position)
            elif requirements:
                attributes[first + position] = requirements
        if len(others) == len(uids):
            return others
        self._next += len(uids)
        ids: Sequence[int] = range(first, self._next)
        if others:
            ids, uids, sandboxes, rests = (_without(column, others) for column in (ids, uids, sandboxes, rests))
        part = self._shared.hold(common, len(uids))
        payloads = encode_alike(part.fid, uids, sandboxes, rests)
        self._tasks.update(zip(ids, zip(uids, repeat(part), strict=False), strict=True))
        self._numbers.update(zip(uids, ids, strict=True))
        source = self._for_any if described.get('raptor_id') == ANY else self._source
        self._router.calls(source, array('Q', ids), payloads, attributes or None)
        self._changed()
        return others

    def cancel(self, uids: Iterable[str]) -> None:
        """Cancel those of the tasks that have no result yet."""
        found = [self._numbers[uid] for uid in uids if uid in self._numbers]
        if found:
            self._router.cancel(self._source, found)
            self._router.cancel(self._for_any, found)

    def give_back(self, count: int) -> None:
        """Return up to `count` tasks for any master to the agent that no rank has started; it always gets an answer."""
        self._router.give_back(self._for_any, count, self._return)

    def close(self) -> None:
        """Drop tasks without a result; the agent decides what happens to them."""
        self._router.close(self._source)
        self._router.close(self._for_any)

    # called by the router

    def started(self, ids: Sequence[int]) -> None:
        """Report tasks as running."""
        self._agent.send('states', states.AGENT_EXECUTING, [self._tasks[number][0] for number in ids])

    def results(self, ids: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Forward the results of tasks."""
        self._agent.results(self._forget(ids), [packed_success(payload) or _opened(payload) for payload in payloads])
        self._changed()

    def _return(self, ids: Sequence[int]) -> None:
        self._agent.returned(self._forget(ids))
        self._changed()

    def _forget(self, ids: Sequence[int]) -> list[str]:
        """Remove tasks, and return their uids."""
        uids = []
        for number in ids:
            uid, part = self._tasks.pop(number)
            del self._numbers[uid]
            uids.append(uid)
            part.calls -= 1
            if not part.calls:
                self._shared.rest(part)
        return uids


def _requirements(common: Mapping[str, Any], rests: Sequence[bytes]) -> Iterable[dict[str, Any] | None]:
    """Yield the attributes of the call for each task, None if `Tasks` has to read it; nothing if all are usual."""
    alike = _call(common)
    if alike == {} and rests.count(codec.NOTHING) == len(rests):
        return
    for rest in rests:
        usual = rest == codec.NOTHING or DECISIVE.isdisjoint(codec.keys_of(rest))
        yield alike if usual else _call({**common, **codec.unpack_dict(rest)})


def _call(description: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        return None if is_for_agent(description) else needs_of(description)
    except (TypeError, ValueError):   # `Tasks` reports the error
        return None


def _without(column: Sequence[Any], positions: Collection[int]) -> Any:
    left_out = set(positions)
    return [each for position, each in enumerate(column) if position not in left_out]


def _opened(payload: bytes) -> dict[str, Any]:
    """Return the result of a task that has failed or has output, as the agent expects it."""
    result = result_of(payload)
    result['target_state'] = target_state(result)
    return {name: value for name in RESULT if (value := result.get(name)) is not None}


def result_of(payload: bytes) -> dict[str, Any]:
    """Return the result of a described task: a failure if it cannot be decoded."""
    try:
        return dict(as_result(payload))
    except Exception as error:
        return failure(error)


def failure(error: BaseException) -> dict[str, Any]:
    """Return the result of a task that has failed because of an error in the master."""
    return {'exception': sentence(error), 'exception_detail': 'its master could not deal with it',
            'target_state': states.FAILED}


class SharedDescription:
    """The packed part that tasks share; `calls` counts those without a result."""

    __slots__ = ('calls', 'fid', 'size')

    def __init__(self, fid: bytes, size: int) -> None:
        self.fid = fid
        self.size = size
        self.calls = 0


class SharedDescriptions:
    """The parts that workers have; `define(fid, data)` and `forget(fid)` send and remove one."""

    def __init__(self, define: Callable[[bytes, bytes], object], forget: Callable[[bytes], object]) -> None:
        self._define = define
        self._forget = forget
        self._parts: dict[bytes, SharedDescription] = {}
        self._idle: OrderedDict[bytes, SharedDescription] = OrderedDict()

    def hold(self, data: bytes, calls: int) -> SharedDescription:
        """Return the part for `calls` further calls, and send it to the workers if needed."""
        fid = blake2b(data, digest_size=FID_BYTES).digest()
        part = self._parts.get(fid)
        if part is None:
            part = self._parts[fid] = SharedDescription(fid, len(data))
            self._define(fid, data)
        self._idle.pop(fid, None)
        part.calls += calls
        return part

    def rest(self, part: SharedDescription) -> None:
        """Keep a part that no call uses, or remove it from the workers."""
        if part.size < PART_MAX_BYTES:
            self._idle[part.fid] = part
            if len(self._idle) <= MAX_UNUSED_PARTS:
                return
            _, part = self._idle.popitem(last=False)
        del self._parts[part.fid]
        self._forget(part.fid)
