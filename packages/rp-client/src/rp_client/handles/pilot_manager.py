"""The pilot manager: submits pilots, follows their states, and ends them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rp_api import units
from rp_api.constants import PILOT_STATE
from rp_api.description.html_table import html_table
from rp_api.description.pilot import PilotDescription
from rp_client.common_description import listed
from rp_client.core.pilot import PilotRecord
from rp_client.flow.pilot_flow import GRACE
from rp_client.handles.base import ManagerHandle
from rp_client.handles.partition import make_pilot
from rp_client.ids import Uids, is_one, uid_of, uids_of
from rp_client.service.owner import owner_of
from rp_client.service.pilots import PilotOwner

if TYPE_CHECKING:
    from rp_client.handles.session import Session


class PilotManager(ManagerHandle):
    """Submits pilots to platforms, follows their states, and ends them.

    Args:
        session: The session that the manager belongs to, and that closes it.
        cfg: Accepted for compatibility, without effect.

    Raises:
        RuntimeError: The session is closed.
    """

    _owner: PilotOwner

    def __init__(self, session: Session, cfg: str | Mapping[str, Any] | None = 'default', *, _uid: str = '') -> None:
        super().__init__(session, PilotOwner(owner_of(session), _uid, self, make_pilot))
        self._rep = self._owner.session.report   # clients of RADICAL-Pilot 1 switch it off

    def _repr_html_(self) -> str:
        """Return a table of the pilots, for notebooks."""
        return html_table(f'PilotManager {self.uid}', {'session': self._session.uid, 'pilots': self._owner.counts()})

    @property
    def cfg(self) -> SimpleNamespace:
        """Settings of the session as attributes: `sid`, `base`, `path`, and the coordinator's address `reg_addr`."""
        return SimpleNamespace(**self._session.cfg, reg_addr=self._session.reg_addr)

    def submit_pilots(self, descriptions: PilotDescription | Sequence[PilotDescription]) -> Any:
        """Submit pilots.

        Returns when the coordinator has accepted the pilots, which then survive the application, or after five
        seconds if it does not answer; the pilots are launched once it has accepted them. If a description is refused,
        no pilot is submitted.

        Args:
            descriptions: One pilot description, or several.

        Returns:
            A `Pilot` for one description, otherwise a list.

        Raises:
            ValueError: A description is not valid, or its uid is in use.
            PlatformError: A platform is unknown.
            RuntimeError: The manager is closed.
        """
        pilots = [pilot.handle for pilot in self._owner.submit(listed(descriptions, 'pilot'))]
        return pilots[0] if isinstance(descriptions, Mapping) else pilots

    def check_uid(self, uid: str) -> bool:
        """Return whether a uid is free: no pilot or partition of the session has it.

        Args:
            uid: The uid of a pilot to submit.
        """
        return not self._owner.session.uids.knows_pilot(uid)

    def list_pilots(self) -> list[str]:
        """Return the uids of all pilots."""
        return list(self._owner.pilots)

    def get_pilots(self, uids: Uids = None) -> Any:
        """Return pilots.

        Args:
            uids: A pilot or uid, several of them, or None for all pilots.

        Returns:
            A `Pilot` for one pilot or uid, otherwise a list.

        Raises:
            ValueError: A uid is unknown.
        """
        if is_one(uids):
            return self._get(uid_of(uids)).handle
        return [pilot.handle for pilot in self._list(uids)]

    def wait_pilots(self, uids: Uids = None, state: str | Iterable[str] | None = None,
                    timeout: units.Time | None = None) -> Any:
        """Wait until pilots have reached a state, and return their states.

        A state that a pilot has passed counts as reached, and a final state ends the wait for a pilot.

        Args:
            uids: A pilot or uid, several of them, or None for all pilots.
            state: A state, or several, of which the earliest counts; default: any final state.
            timeout: Seconds to wait at most; default: no limit.

        Returns:
            A state for one pilot or uid, otherwise a list of states.

        Raises:
            ValueError: A uid or a state is unknown.
            RuntimeError: The session was closed or has failed.
        """
        pilots = self._list(uids)
        self._owner.wait_for(pilots, state, timeout)
        return pilots[0].state if is_one(uids) else [pilot.state for pilot in pilots]

    def cancel_pilots(self, uids: Uids = None, _timeout: float | None = None) -> None:
        """End pilots and their tasks, and wait until they have ended; kill them after ten seconds.

        Args:
            uids: A pilot or uid, several of them, or None for all pilots.

        Raises:
            ValueError: A uid is unknown.
        """
        self._owner.cancel(self._list(uids), GRACE if _timeout is None else _timeout)

    def kill_pilots(self, uids: Uids = None) -> None:
        """Kill pilots and their tasks, and wait until they have ended.

        Args:
            uids: A pilot or uid, several of them, or None for all pilots.

        Raises:
            ValueError: A uid is unknown.
        """
        self._owner.kill(self._list(uids))

    def register_callback(self, cb: Callable[..., Any], cb_data: Any = None, metric: str = PILOT_STATE) -> None:
        """Register a callback for the states of all pilots of this manager.

        It is called as `cb(pilot, state)` in a thread of the session, for each state in order.

        Args:
            cb: The callable.
            cb_data: A third argument for `cb`; default: none is passed.
            metric: `PILOT_STATE`.

        Raises:
            ValueError: `cb` does not take these arguments, or the metric is unknown.
        """
        self._owner.check_process()
        self._owner.release(self._owner.tracker.release, self._owner.callbacks.add(cb, metric, cb_data))

    def unregister_callback(self, cb: Callable[..., Any] | None = None, metric: str = PILOT_STATE) -> None:
        """Remove a callback.

        Args:
            cb: The callable; default: all callbacks of the manager.
            metric: `PILOT_STATE`.

        Raises:
            ValueError: `cb` is not registered, or the metric is unknown.
        """
        self._owner.check_process()
        self._owner.callbacks.remove(cb, [metric])

    def as_dict(self) -> dict[str, Any]:
        """Return the manager and its pilots as plain data."""
        return {'type': 'pmgr', 'uid': self.uid, 'cfg': {}, 'pilots': [pilot.as_dict() for pilot in self.get_pilots()]}

    def close(self, terminate: bool = True) -> None:
        """End all pilots and the manager. Closing a closed manager has no effect.

        Args:
            terminate: False refuses further pilots, and leaves the present ones to the session.
        """
        self._owner.close(terminate=terminate)

    def _get(self, uid: str) -> PilotRecord:
        try:
            return self._owner.pilots[uid]
        except KeyError:
            known = ', '.join(self._owner.pilots) or 'none'
            raise ValueError(f'pilot {uid} is not known to {self.uid}, known are: {known}') from None

    def _list(self, uids: Uids) -> list[PilotRecord]:
        return [self._get(uid) for uid in (list(self._owner.pilots) if uids is None else uids_of(uids))]
