"""RAPTOR workers that span nodes: their parts, and what the managers are told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from executor_support import a_context, a_slot, a_task

from rp_agent.components.stage import Flow
from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.plan import plan, variables_of
from rp_agent.raptor.worker_parts import WorkerPart, WorkerParts
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.constants import RAPTOR_WORKER


class Placement:
    """Slots on two nodes."""

    def nodes(self) -> list[int]:
        return [3, 5]

    def slots(self) -> list[dict[str, Any]]:
        return [{**a_slot(rank), 'node_index': node, 'node_name': f'n{node}',
                 'cores': [{'index': rank, 'occupation': 1.0}]} for rank, node in enumerate((3, 3, 5))]

    def cores_of_rank(self, rank: int) -> tuple[int, ...]:
        return (rank,)


def a_worker(path: Path, **description: Any) -> AgentTask:
    worker = a_task(path, 'worker.0000', mode=RAPTOR_WORKER, ranks=3, **description)
    worker.slots, worker.placement = None, Placement()
    return worker


class Executors(Flow):
    """The uids of the tasks whose runs were ended."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def end_runs(self, tasks: Sequence[AgentTask]) -> None:
        self.cancelled += [task.uid for task in tasks]


@pytest.fixture
def executors() -> Executors:
    return Executors()


@pytest.fixture
def parts(executors: Executors) -> WorkerParts:
    return WorkerParts(lambda part: None, executors)


def ended(part: WorkerPart, state: str, exception: str | None = None) -> WorkerPart:
    part.state = states.AGENT_STAGING_OUTPUT_PENDING
    part.target_state, part.exception, part.exit_code = state, exception, int(state != states.DONE)
    return part


def divided(parts: WorkerParts, worker: AgentTask) -> list[WorkerPart]:
    found = parts.placed([worker])
    assert all(isinstance(part, WorkerPart) for part in found)
    return found   # type: ignore[return-value]


def test_each_node_gets_its_ranks(parts: WorkerParts, executors: Executors, tmp_path: Path) -> None:
    worker, other = a_worker(tmp_path, stdout='log'), a_task(tmp_path)
    other.placement = Placement()
    *rest, first, second = parts.placed([worker, other])
    assert rest == [other]
    assert [part.description['ranks'] for part in (first, second)] == [2, 1]
    assert [part.placement.nodes() for part in (first, second)] == [[3], [5]]
    assert [slot['node_name'] for slot in second.slots or ()] == ['n5']
    assert (first.cores(1), second.cores(0), second.cores(1)) == ((1,), (2,), ())
    assert (first.description['stdout'], second.description['stdout']) == ('log', 'worker.0000.part.0001.out')
    parts.cancel(['worker.0000', other.uid])
    assert executors.cancelled == [first.uid, second.uid]   # the pipeline cancels the others


def test_a_worker_that_the_scheduler_does_not_place_has_one_manager(parts: WorkerParts, executors: Executors,
                                                                    tmp_path: Path) -> None:
    """As with executors that place tasks themselves, such as FLUX, also on pilots of several nodes."""
    worker = a_worker(tmp_path)
    worker.placement = None
    assert parts.placed([worker]) == [worker]
    parts.cancel([worker.uid])
    assert executors.cancelled == []


def test_the_application_sees_one_worker(parts: WorkerParts, tmp_path: Path) -> None:
    worker = a_worker(tmp_path)
    first, second = divided(parts, worker)
    assert list(parts.visible([first], states.AGENT_EXECUTING)) == [worker]
    assert list(parts.visible([second], states.AGENT_EXECUTING)) == []
    assert list(parts.visible([first], states.AGENT_STAGING_OUTPUT_PENDING)) == []
    assert parts.returned([ended(first, states.DONE)]) == []
    assert parts.returned([ended(second, states.DONE)]) == [worker]
    assert (worker.target_state, worker.exit_code, worker.exception) == (states.DONE, 0, None)


def test_the_end_of_a_part_is_reported_and_decides_if_all_fail(tmp_path: Path) -> None:
    reported: list[WorkerPart] = []
    parts = WorkerParts(reported.append, Executors())
    worker, again = a_worker(tmp_path), a_worker(tmp_path)
    first, second = divided(parts, worker)
    assert parts.returned([ended(second, states.FAILED, 'node n5 is lost')]) == []
    assert reported == [second]
    assert parts.returned([ended(first, states.DONE)]) == [worker]
    assert worker.target_state == states.DONE
    first, second = divided(parts, again)
    assert parts.returned([ended(second, states.FAILED, 'it has no class'), ended(first, states.FAILED)]) == [again]
    assert (again.target_state, again.exception) == (states.FAILED, 'it has no class')


def test_a_worker_without_one_of_its_nodes_can_be_cancelled(parts: WorkerParts, tmp_path: Path) -> None:
    worker = a_worker(tmp_path)
    first, second = divided(parts, worker)
    assert parts.returned([ended(second, states.FAILED, 'node n5 is lost')]) == []
    assert parts.returned([ended(first, states.CANCELED)]) == [worker]
    assert (worker.target_state, worker.exception) == (states.CANCELED, None)


def variables(task: AgentTask, **context: Any) -> dict[str, str]:
    return variables_of(task, TaskEnvironment(a_context()._replace(**context)))


def test_managers_know_their_part_and_the_devices_of_their_ranks(parts: WorkerParts, tmp_path: Path) -> None:
    first, second = divided(parts, a_worker(tmp_path, gpus_per_rank=1.0, gpu_type='ROCm'))
    told = variables(first, cpus=(4, 5, 6), gpu_ids=('uuid-a', 'uuid-b', 'uuid-c'))
    assert json.loads(told['RP_RAPTOR_SLOTS']) == [
        {'node': 'n3', 'cores': [rank], 'cpus': [4 + rank], 'gpus': [name]}
        for rank, name in enumerate(('uuid-a', 'uuid-b'))]
    assert told['RP_RAPTOR_GPUS'] == 'ROCR_VISIBLE_DEVICES'
    assert (told['RP_TASK_ID'], told['RP_RANKS']) == ('worker.0000.part.0000', '2')
    assert json.loads(variables(second)['RP_RAPTOR_PART']) == {
        'worker': 'worker.0000', 'part': 1, 'parts': 2, 'numbers': [2], 'total': 3, 'files': str(tmp_path)}


def test_the_first_manager_gets_the_reason_if_no_launcher_can_start_an_mpi_job(parts: WorkerParts,
                                                                              tmp_path: Path) -> None:
    first, second = divided(parts, a_worker(tmp_path))
    environment = TaskEnvironment(a_context(), lambda name, search_path, sandbox: name)
    assert 'needs a launch method' in json.loads(plan(first, environment).scripts['worker.0000.job.json'])['refused']
    assert not plan(second, environment).scripts
