"""An agent that was taken over says that a program has returned an object: the application does not restore it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

import radical.pilot as rp
from rp_api import states
from rp_api.coordination.connect import agent_connection
from rp_api.coordination.contract import Update
from rp_api.errors import DeserializationError
from rp_api.loop.event_loop import Loop
from rp_api.values import to_plain


class Proof:
    """Makes a file when it is restored."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.mark.parametrize('form', ['pickled', 'in a file', 'of ranks'])
def test_value_of_a_program(run: Run, loop: Loop, tmp_path: Path, form: str) -> None:
    """Its keys are those of all agents of the session, and it may report states of the tasks of its pilot."""
    task = run.tmgr.submit_tasks(rp.TaskDescription({'executable': 'sleep', 'arguments': ['100']}))
    task.wait(rp.AGENT_EXECUTING, timeout=30)
    proof = tmp_path / 'proof'
    value: Any = {'__rp_pickled__': pickle.dumps(Proof(proof))}
    if form == 'in a file':
        value = to_plain([Proof(proof), bytes(2 << 20)], str(tmp_path), 'value')
    access = run.session._owner.engine.coordinator.agent_access
    taken_over = agent_connection(loop, access, run.pilot.uid, 'agent_1')   # whose place nobody has
    taken_over.update_tasks([Update(task.uid, states.TMGR_STAGING_OUTPUT_PENDING, {
        'target_state': states.DONE, 'exit_code': 0, 'mode': rp.TASK_FUNCTION, 'raptor_id': 'master',
        'return_value': [value] if form == 'of ranks' else value})])
    taken_over.when_settled(loop.stop)
    loop.run()
    taken_over.close()
    assert task.wait(timeout=30) == rp.DONE
    for look in (lambda: task.return_value, task.as_dict, run.tmgr.dump):
        with pytest.raises(DeserializationError, match=rf'return_value of {task.uid} is a pickled object'):
            look()
    assert not proof.exists()
    assert run.pilot.state == rp.PMGR_ACTIVE
