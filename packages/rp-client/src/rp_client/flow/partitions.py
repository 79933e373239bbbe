"""The partitions of a manager's pilots: creates, tracks and ends them. To the coordinator, a partition is a pilot.

The supervisor of a pilot, which replaces its agent, starts and ends the agents of the partitions. Before a pilot is
active, and when it has ended, its partitions follow its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rp_api import states, units
from rp_api.constants import PILOT_STATE
from rp_api.coordination.contract import KnownPilot, Update
from rp_api.description.partitions import WHOLE, partition_uid, size
from rp_api.errors import DescriptionError
from rp_api.record import CastError
from rp_client.core.pilot import PartitionRecord, PilotRecord
from rp_client.engine.callbacks import Registry
from rp_client.engine.engine import Engine
from rp_client.engine.tracker import Change, Tracker
from rp_client.flow.uids import Uids
from rp_profiling.write.tracer import Tracer

if TYPE_CHECKING:
    from rp_client.engine.waiting import Board

REMOVAL = 20.0
"""Seconds to wait for the end of a partition; its supervisor kills it earlier."""


def first_uids(pilot: str, partitions: int | list[Any]) -> list[str]:
    """Return the uids of the initial partitions of a pilot."""
    number = partitions if isinstance(partitions, int) else len(partitions)
    return [partition_uid(pilot, index) for index in range(number)]


class Partitions:
    """The partitions of one pilot manager, by uid. Callbacks of the manager are not called for partitions."""

    def __init__(self, session: SessionServices, board: Board, owner: str,
                 make_handle: Callable[[PartitionRecord], object]) -> None:
        self._session = session
        self._make_handle = make_handle
        self._board = board
        self._engine = session.engine
        self._known: dict[str, PartitionRecord] = {}
        self.tracker = Tracker(states.PILOT, PILOT_STATE, Registry({}), session.engine.dispatcher, board, owner)
        self._engine.acknowledger.follow(self.tracker)

    def make_first(self, pilot: PilotRecord) -> None:
        """Make the initial partitions of a new pilot."""
        for _ in first_uids(pilot.uid, pilot.description.partitions):
            self.make(pilot)

    def make(self, pilot: PilotRecord) -> PartitionRecord:
        """Make the next partition of a pilot."""
        partition = PartitionRecord(pilot, len(pilot.partitions))
        self._known[partition.uid] = partition
        pilot.partitions.append(partition)
        self._make_handle(partition)
        return partition

    def add(self, pilot: PilotRecord, wanted: Mapping[str, int]) -> PartitionRecord:
        """Add a partition to a pilot; see `Pilot.add_partition`."""
        given = {name: number for name, number in wanted.items() if number}
        try:
            smallest = size(given) if given else {}
        except CastError as error:
            raise DescriptionError(f'a partition must have {error}, not {given!r}') from None
        self._check(pilot)
        partition = self.make(pilot)
        self._session.uids.claim_pilots([partition.uid])
        self._engine.call(self._add, partition, smallest)
        return partition

    def remove(self, partition: PartitionRecord) -> None:
        """End a partition, and wait until it has ended; raise RuntimeError if that takes too long."""
        self._engine.call(self._remove, partition)
        if not self.wait(partition, None, REMOVAL):
            raise RuntimeError(f'{partition.uid} has not ended within {REMOVAL:.0f} s: it is {partition.state}')

    def wait(self, partition: PartitionRecord, state: str | Iterable[str] | None, timeout: units.Time | None) -> bool:
        """Wait for a state; return False after `timeout` seconds."""
        return self._board.wait([partition], state, timeout)

    def _check(self, pilot: PilotRecord) -> None:
        self._engine.process.check()
        if not pilot.divided:
            raise RuntimeError(f'{pilot.uid} has no partitions, and none can be added: set PilotDescription.partitions')
        if pilot.state in states.FINAL:
            raise RuntimeError(f'{pilot.uid} is {pilot.state}: no partition can be added')

    # called in the loop

    def insert_first(self, pilots: Iterable[PilotRecord]) -> None:
        """Send the partitions of these pilots to the coordinator."""
        self._insert([partition for pilot in pilots for partition in pilot.partitions])

    def _insert(self, partitions: Iterable[PartitionRecord]) -> None:
        records = {partition.uid: _record(partition) for partition in partitions}
        if records:
            self._engine.connection.insert_pilots(records, self.tracker.owner)

    def _add(self, partition: PartitionRecord, size: Mapping[str, int]) -> None:
        """Command the pilot's supervisor to start a partition of that size."""
        connection = self._engine.connection
        self._insert([partition])
        self._advance([partition], states.PMGR_ACTIVE_PENDING)
        connection.command(partition.whole.uid, {
            'cmd': 'add_partition', 'number': partition.number, 'size': dict(size)})
        if partition.whole.state in states.FINAL:   # the pilot has ended meanwhile
            self.follow(partition.whole, partition.whole.state)

    def _remove(self, partition: PartitionRecord) -> None:
        """Command the pilot's supervisor to end a partition; a supervisor that is not running yet gets this later."""
        if partition.state in states.FINAL:
            return
        whole, reason = partition.whole, 'was removed'
        self._engine.connection.command(whole.uid, {
            'cmd': 'remove_partition', 'number': partition.number, 'reason': reason})
        if states.PILOT.value(whole.state) < states.PILOT.value(states.PMGR_ACTIVE):
            self._advance([partition], states.CANCELED, {'reason': f'{partition.uid} {reason}'})
            self._over([partition])

    def apply(self, updates: Iterable[Update]) -> None:
        """Apply the updates of agents, and of supervisors."""
        changes = [Change(self._known[uid], state, info) for uid, state, info in updates if uid in self._known]
        for partition, state, _ in self.tracker.apply(changes):
            if state == states.PMGR_ACTIVE:
                self._session.places_changed(partition.whole)
            elif state in states.FINAL:
                self._over([partition])

    def follow(self, pilot: PilotRecord, state: str) -> None:
        """Advance the partitions of a pilot with it, except to PMGR_ACTIVE, which their agents report."""
        if not pilot.divided or state == states.PMGR_ACTIVE:
            return
        live = [partition for partition in pilot.partitions if partition.state not in states.FINAL]
        if state in states.FINAL:
            reason = f'{pilot.uid} has ended as {state}' + (f': {pilot.exception}' if pilot.exception else '')
            info = {'reason': reason} if state != states.FAILED else {
                'exception': reason, 'exception_detail': pilot.exception_detail}
            self._advance(live, state, info)
            self._over(live)
        else:
            self._advance(live, state)

    def restore(self, pilot: PilotRecord, known: KnownPilot) -> PartitionRecord:
        """Restore a partition from the coordinator's record."""
        partition = self.make(pilot)
        partition.restore(known.state, known.info)
        self.tracker.restored(partition, known.told)
        return partition

    def _advance(self, partitions: list[PartitionRecord], state: str, info: dict[str, Any] | None = None) -> None:
        changes = self.tracker.apply([Change(partition, state, info) for partition in partitions])
        if changes:
            self._engine.connection.update_pilots([Update(change.entity.uid, state, info) for change in changes])

    def _over(self, partitions: list[PartitionRecord]) -> None:
        """Stop binding tasks to partitions that have ended, then handle the tasks that they left."""
        for pilot in {partition.whole.uid: partition.whole for partition in partitions}.values():
            self._session.places_changed(pilot)
        for partition in partitions:
            self._session.pilot_left(partition)


def _record(partition: PartitionRecord) -> dict[str, Any]:
    whole = partition.whole
    return {'pmgr': whole.owner, WHOLE: whole.uid}


class SessionServices(Protocol):
    """The attributes and methods of a session that pilot managers use."""

    uid: str
    path: str
    uids: Uids
    engine: Engine

    @property
    def reg_addr(self) -> str: ...
    def agent_config(self) -> dict[str, Any]: ...
    def make_tracer(self, name: str) -> Tracer: ...
    def pilot_ended(self, pilot: PilotRecord) -> None: ...
    def pilot_left(self, pilot: PilotRecord) -> None: ...
    def places_changed(self, pilot: PilotRecord) -> None: ...
