"""A second session object that joins the session of the process, as EnTK makes one for its task manager."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import msgpack
import pytest
from conftest import pilot_description

import radical.pilot as rp
from rp_api.errors import CoordinationError
from rp_client.handles.session import JoinedSession


def joined(uid: str, reg_addr: str | None = None) -> Any:
    """What EnTK calls; the argument with the address has no type that would allow it."""
    return rp.Session(uid=uid, _reg_addr=reg_addr, _role=rp.Session._DEFAULT)


def test_a_joined_session_is_the_session(session: rp.Session, base: Path) -> None:
    pmgr = rp.PilotManager(session=session)
    assert pmgr.cfg.reg_addr == session.reg_addr
    pilot = pmgr.submit_pilots(pilot_description(base))
    other = joined(session.uid, pmgr.cfg.reg_addr)
    assert type(other) is JoinedSession
    assert isinstance(other, rp.Session)
    assert (other.uid, other.path, other._owner) == (session.uid, session.path, session._owner)
    other._role = rp.Session._PRIMARY
    with pytest.raises(ValueError, match='donwload'):
        other.close(donwload=True)
    joined(session.uid).close(terminate=True)

    pilot.wait(rp.PMGR_ACTIVE, timeout=30)
    plain = pilot.as_dict()
    assert msgpack.unpackb(msgpack.packb(plain), strict_map_key=False) == plain
    assert pickle.loads(pickle.dumps(plain)) == plain
    assert plain['description']['cores'] == 4
    tmgr = rp.TaskManager(session=other)
    assert tmgr.session is other
    assert session.list_task_managers() == [tmgr.uid] == other.list_task_managers()
    tmgr.add_pilots(msgpack.unpackb(msgpack.packb(plain), strict_map_key=False))
    assert tmgr.submit_tasks(rp.TaskDescription({'executable': '/bin/true'})).wait(timeout=30) == rp.DONE
    pmgr.cancel_pilots(pilot.uid, _timeout=20)
    assert pilot.state == rp.CANCELED
    assert not session.closed

    session.close()
    assert other.closed
    tmgr.close()
    other.close()
    with pytest.raises(RuntimeError, match='is closed'):
        rp.TaskManager(session=other)
    with pytest.raises(CoordinationError, match=f'{session.uid} is not open in this process'):
        joined(session.uid)


def test_only_open_sessions_can_be_joined(session: rp.Session) -> None:
    with pytest.raises(ValueError, match=r"_reg_addr is 'tcp://x:1', but .* has 'ipc://"):
        joined(session.uid, 'tcp://x:1')
    with pytest.raises(CoordinationError, match=r'no\.such is not open in this process'):
        joined('no.such')
    with pytest.raises(ValueError, match='by its uid'):
        joined('', session.reg_addr)
    with pytest.raises(ValueError, match="_role is 'agent_0', allowed are: primary, default"):
        rp.Session(_role='agent_0')
    assert not session.closed
