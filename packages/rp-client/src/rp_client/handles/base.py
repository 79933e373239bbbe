"""The base classes of handles: of tasks, pilots and partitions, and of their managers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from rp_api import units
from rp_client.engine.callbacks import SHOWN_STATES

if TYPE_CHECKING:
    from rp_client.handles.session import Session
    from rp_client.service.view import LiveView


class Handle:
    """A record, and the owner of tasks or pilots that acts on it; applications make none."""

    __slots__ = ('__weakref__', '_owner', '_record')

    _kind: ClassVar[str]

    def __init__(self, owner: Any, record: Any) -> None:
        self._owner = owner
        self._record = record

    def __repr__(self) -> str:
        return f'<{self._kind} {self._record.uid} {self._record.state}>'

    @property
    def uid(self) -> str:
        """The unique id."""
        return str(self._record.uid)

    @property
    def state(self) -> str:
        """The last known state, see `radical.pilot.states`; for callbacks of bulks, the told one."""
        shown = SHOWN_STATES.states
        return shown.get(self, self._record.state) if shown else self._record.state

    @property
    def session(self) -> Session:
        """The session that it belongs to."""
        return self._owner.manager.session   # type: ignore[no-any-return]

    @property
    def _view(self) -> LiveView:
        """The session, as reasons are made from it."""
        from rp_client.service.view import LiveView  # it needs what reads the files of sessions

        return LiveView(self._owner.session)

    def wait(self, state: str | Iterable[str] | None = None, timeout: units.Time | None = None) -> str:
        """Wait until a state is reached, and return the state.

        A state that was passed counts as reached, and a final state ends the wait.

        Args:
            state: A state, or several, of which the earliest counts; default: any final state.
            timeout: Seconds to wait at most; default: no limit.

        Raises:
            StateError: A state is unknown.
            RuntimeError: The session was closed or has failed.
        """
        self._owner.wait_for([self._record], state, timeout)
        return str(self._record.state)


def record_of(handle: Handle) -> Any:
    """Return the record of a handle, for other parts of the client."""
    return handle._record


class ManagerHandle:
    """The handle of a pilot manager or task manager."""

    def __init__(self, session: Session, owner: Any) -> None:
        self._session = session
        self._owner = owner
        self.uid: str = owner.uid

    def __repr__(self) -> str:
        return f'<{type(self).__name__} {self.uid}: {self._owner.counts()}>'

    @property
    def session(self) -> Session:
        """The session that the manager belongs to."""
        return self._session

    def as_dict(self) -> dict[str, Any]:
        """Return the manager and what it has submitted as plain data."""
        raise NotImplementedError

    def dump(self, name: str | None = None) -> None:
        """Write `as_dict()` to `<uid>[.<name>].json` in the session directory.

        Args:
            name: Part of the file name that distinguishes several dumps.
        """
        self._owner.session.dump(self.uid, name, self.as_dict())
