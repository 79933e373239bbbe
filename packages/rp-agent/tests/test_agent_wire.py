"""Tasks as plain data: what travels to a component in another process, and what comes back."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rp_agent.nodes.remote import apply, changes, from_wire, to_wire
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.wire.codec import pack_bulk, unpack_bulk

STAYS = {'beside', 'placement', 'request', 'ticket', 'cancelled', 'packed', 'step', 'own'}
"""What is Agent_0's alone; a cancel is told by itself."""


def travelled(data: Any) -> Any:
    (arrived,) = unpack_bulk(*pack_bulk([{'data': data}]))
    return arrived['data']


def seen(task: AgentTask) -> dict[str, Any]:
    return {name.lstrip('_'): getattr(task, name.lstrip('_')) for name in AgentTask.__slots__} | {
        'description': dict(task.description)}


def a_task(**values: Any) -> AgentTask:
    task = AgentTask('task.1', {'executable': 'x', 'ranks': 2}, 'pilot.1', '/sandbox')
    for name, value in values.items():
        setattr(task, name, value)
    return task


FULL: dict[str, Any] = {
    'slots': [{'cores': [{'index': 3, 'occupation': 1.0}], 'gpus': []}], 'exit_code': 3, 'stdout': 'out',
    'stderr': 'err', 'return_value': [1], 'exception': 'E', 'exception_detail': 'why',
    'error': {'kind': 'exit'}, 'target_state': states.FAILED, 'state': states.AGENT_EXECUTING, 'output_files': ['a'],
    'ran': [1.0, 2.0, 3.0, 0.5, 0.25, 7.0, {'memory': 100}],
    'extra': {'before': {'a', 'b'}, 'note': [1, {'x': 2}]}}


def test_everything_travels() -> None:
    """A new attribute of a task either travels, or is named above."""
    task = a_task(**FULL)
    fresh = seen(a_task())
    assert {name for name, value in seen(task).items() if value == fresh[name]} == STAYS | {
        'uid', 'description', 'pilot', 'sandbox'}
    assert seen(from_wire(travelled(to_wire(task)))) == seen(task)


def test_what_is_filled_in_comes_back() -> None:
    here = a_task(slots=FULL['slots'], extra={'scheduler.own': object()}, cancelled=True)
    there = from_wire(travelled(to_wire(here)))
    for name in FULL.keys() - {'slots'}:
        setattr(there, name, FULL[name])
    kept = here.extra['scheduler.own']
    apply(here, travelled(changes(there)))
    assert seen(here) == seen(a_task(**FULL | {'cancelled': True, 'extra': FULL['extra'] | {'scheduler.own': kept}}))


def test_results_do_not_carry_what_is_known() -> None:
    assert not {'description', 'slots', 'pilot', 'sandbox'} & changes(a_task(**FULL)).keys()


def test_defaults_of_a_description_hold_there_too() -> None:
    assert from_wire(travelled(to_wire(a_task()))).description['cores_per_rank'] == 1


@given(st.text(), st.text(), st.sets(st.text()), st.one_of(st.none(), st.integers(-64, 255)))
def test_any_result(stdout: str, exception: str, before: set[str], code: int | None) -> None:
    task = a_task(stdout=stdout, exception=exception, exit_code=code, extra={'before': before})
    assert seen(from_wire(travelled(to_wire(task)))) == seen(task)
