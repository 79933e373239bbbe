"""The link between agent and masters: access files, and messages that are checked before they are acted on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rp_api import states
from rp_api.errors import CoordinationError
from rp_api.raptor_link import from_agent, from_master, link_file, master_file, target_state
from rp_api.transport.access import Access
from rp_api.transport.keys import generate
from rp_api.wire import codec

KEYS = generate()
ACCESS = Access('ipc:///x/s', KEYS.public.decode(), KEYS.public.decode(), KEYS.secret.decode())


def test_access_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / 'access.json'
    path.write_text('of somebody before')
    ACCESS.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Access.load(path) == ACCESS
    assert (ACCESS.keys, ACCESS.server_key) == (KEYS, KEYS.public)
    assert os.listdir(tmp_path) == ['access.json']


def test_secret_is_not_shown() -> None:
    assert ACCESS.secret not in f'{ACCESS} {ACCESS!r}'


@pytest.mark.parametrize('text', ['', 'x', '[]', '{}', '{"address": 1, "server": "", "public": "", "secret": ""}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / 'access.json'
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(CoordinationError):
        Access.load(path)


def test_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    ACCESS.save(tmp_path / 'a')
    (tmp_path / 'a').chmod(0o640)
    with pytest.raises(CoordinationError, match='others may use it'):
        Access.load(tmp_path / 'a')


def test_files_of_a_pilot() -> None:
    assert link_file('/pilot') == '/pilot/raptor.json'
    assert master_file('/pilot', 'raptor.0000') == '/pilot/raptor.0000.raptor.json'


@pytest.mark.parametrize('message', [
    ['hello', 'raptor.0', 7, ACCESS.as_dict()], ['credit', 5], ['states', 'AGENT_EXECUTING', ['a']],
    ['results', ['a', 'b'], [{'exit_code': 1}, b'packed']], ['submit', [{'uid': 'a'}]], ['cancel', []],
    ['rpc_result', 1, True, None], ['bye']])
def test_messages_of_masters(message: list[Any]) -> None:
    operation, arguments = from_master(codec.pack(message))
    assert [operation, *arguments] == message


@pytest.mark.parametrize('message', [
    ['welcome', {'nodes': 1}], ['tasks', b'common', ['a'], ['/a'], [b'rest']], ['cancel', ['a']],
    ['task_state', 'a', 'DONE', {}], ['task_state', 'a', 'AGENT_EXECUTING', None], ['rpc', 1, 'stop', [], {}],
    ['stop', 'why']])
def test_messages_of_the_agent(message: list[Any]) -> None:
    operation, arguments = from_agent(codec.pack(message))
    assert [operation, *arguments] == message


@pytest.mark.parametrize('message', [
    None, [], [7], ['welcome', {}], ['credit'], ['credit', -1], ['credit', True], ['credit', 1, 2],
    ['states', 's', [1]],
    ['results', ['a']], ['results', ['a'], [None]], ['results', ['a'], []], ['results', {'a': {}}], ['submit', [{}]],
    ['submit', [{'uid': 1}]],
    ['hello', 'raptor.0', 7, None], ['rpc_result', 1, 1, None], ['cancel', 'a']])
def test_malformed_messages_are_refused(message: Any) -> None:
    with pytest.raises(CoordinationError, match='malformed'):
        from_master(codec.pack(message))


@pytest.mark.parametrize('message', [
    ['tasks', b'', [], []], ['tasks', '', [], [], []], ['tasks', b'', ['a'], ['/a'], []],
    ['tasks', b'', ['a'], [1], [b'']], ['credit', 1]])
def test_malformed_messages_of_the_agent_are_refused(message: Any) -> None:
    with pytest.raises(CoordinationError, match='malformed message'):
        from_agent(codec.pack(message))


@pytest.mark.parametrize(('result', 'state'), [
    ({}, states.DONE), ({'exit_code': 0}, states.DONE), ({'exit_code': 1}, states.FAILED),
    ({'exception': 'E'}, states.FAILED), ({'target_state': states.CANCELED, 'exit_code': 1}, states.CANCELED),
    ({'target_state': 'odd'}, states.DONE)])
def test_state_of_a_result(result: dict[str, Any], state: str) -> None:
    assert target_state(result) == state
