"""Which backend a session or an agent gets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rp_api.coordination.connect import agent_connection, coordinator
from rp_api.coordination.connections.embedded import HubAgentConnection
from rp_api.coordination.coordinator import Settings
from rp_api.coordination.hub_process import HubProcess
from rp_api.errors import CoordinationError
from rp_api.loop.event_loop import Loop


def test_sessions_have_a_hub_of_their_own_unless_they_want_something_else(tmp_path: Path) -> None:
    made = coordinator('session', tmp_path, Settings(lease=7))
    assert isinstance(made, HubProcess)
    assert not made.attached
    assert made.agent_access['backend'] == 'hub'
    assert made.agent_access['endpoint'] == made.endpoint
    made.stop(0)


def test_agents_get_where_they_are_told_to_go(tmp_path: Path) -> None:
    made = coordinator('session', tmp_path, Settings())
    loop = Loop()
    connection = agent_connection(loop, made.agent_access, 'pilot.0000', 'agent_0')
    assert isinstance(connection, HubAgentConnection)
    connection.close()
    loop.close()
    made.stop(0)


def test_agent_that_is_too_old_for_its_session() -> None:
    with pytest.raises(CoordinationError, match=r"coordinated by 'carrier pigeons'.*supported: hub, mongodb"):
        agent_connection(Loop(), {'backend': 'carrier pigeons'}, 'pilot.0000', 'agent_0')


def test_backends_are_loaded_when_they_are_needed() -> None:
    code = 'import sys; import rp_api.coordination.connect; print(*sys.modules)'
    loaded = subprocess.run([sys.executable, '-c', code], check=True, capture_output=True, text=True).stdout.split()
    assert not {'pymongo', 'rp_api.coordination.hub_process', 'rp_api.coordination.mongodb'} & set(loaded)
