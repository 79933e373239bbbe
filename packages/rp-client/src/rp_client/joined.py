"""A second object for the session that the process has open; EnTK makes one for its task manager."""

from __future__ import annotations

from typing import Any

from rp_api.errors import CoordinationError
from rp_client.session import Session
from rp_client.settings import checked_close_options


class JoinedSession(Session):
    """The open session of that uid in this process, as `Session(uid=..., _reg_addr=..., _role=...)` returns it.

    Its managers, pilots and tasks are those of the session, which ends with the object that opened it: closing this
    one has no effect.

    Args:
        uid: Uid of the session.
        _reg_addr: Address of its coordinator (`Session.reg_addr`), which is checked; default: any.
        _role: Accepted for compatibility, without effect; it may be assigned later.

    Raises:
        ValueError: There is no uid, or the coordinator has another address.
        CoordinationError: The process does not have a session of that uid open.
    """

    def __init__(self, *, uid: str | None = None, _reg_addr: str | None = None, _role: str = Session._DEFAULT) -> None:
        self._role = _role
        self._session = _opened(uid)
        if _reg_addr and _reg_addr != self._session.reg_addr:
            raise ValueError(f'_reg_addr is {_reg_addr!r}, but {uid} has {self._session.reg_addr!r}')

    def __getattr__(self, name: str) -> Any:
        if name == '_session':   # the initialisation has failed
            raise AttributeError(name)
        return getattr(self._session, name)

    def close(self, **options: bool) -> None:
        """Leave the session as it is; it may be closed already.

        Args:
            **options: The options of `Session.close`, without effect.

        Raises:
            ValueError: An option is unknown.
        """
        checked_close_options(options)


def _opened(uid: str | None) -> Session:
    if not uid:
        raise ValueError('a session is joined by its uid, which is not given')
    session = Session._opened.get(uid)
    if session is None:
        raise CoordinationError(f'{uid} is not open in this process, and only sessions that are can be joined: to '
                                f'attach to a session that no application has open, use Session(uid={uid!r})')
    session._engine.process.check()
    return session
