"""RAPTOR workers that span nodes: their parts, and what the managers are told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from executor_support import a_context, a_slot, a_task
from launcher_support import launchers

from rp_agent.components.stage import Flow, Owner
from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.plan import plan, variables_of
from rp_agent.raptor.transport import Transports
from rp_agent.raptor.worker_parts import WorkerPart, WorkerParts
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.constants import RAPTOR_WORKER
from rp_api.loop.event_loop import Loop
from rp_profiling.write.tracer import Tracer


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


class Notices(Owner):
    """What the application is told: sentences, and reports about the tasks that it knows."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.known: list[AgentTask] = []
        self.reports: list[tuple[str, dict[str, Any]]] = []

    def find(self, uid: str) -> AgentTask | None:
        return next((task for task in self.known if task.uid == uid), None)

    def report(self, task: AgentTask, info: dict[str, Any]) -> None:
        self.reports.append((task.uid, info))

    def notice(self, sentence: str) -> None:
        self.told.append(sentence)


@pytest.fixture
def notices() -> Notices:
    return Notices()


@pytest.fixture
def tracer(tmp_path: Path) -> Iterator[Tracer]:
    with closing(Tracer(tmp_path / 'raptor.prof', 'raptor')) as found:
        yield found


@pytest.fixture
def parts(executors: Executors, notices: Notices, tracer: Tracer, tmp_path: Path) -> WorkerParts:
    return WorkerParts(lambda part: None, tracer, executors, notices, Transports({}, str(tmp_path)))


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


def test_the_application_sees_one_worker_with_its_transport(parts: WorkerParts, notices: Notices, tracer: Tracer,
                                                            tmp_path: Path) -> None:
    worker = a_worker(tmp_path)
    notices.known.append(worker)
    first, second = divided(parts, worker)
    assert list(parts.visible([first], states.AGENT_EXECUTING)) == [worker]
    assert list(parts.visible([second], states.AGENT_EXECUTING)) == []
    assert notices.reports == [('worker.0000', {'transport': 'zmq'})]
    assert list(parts.visible([first], states.AGENT_STAGING_OUTPUT_PENDING)) == []
    assert parts.returned([ended(first, states.DONE)]) == []
    assert parts.returned([ended(second, states.DONE)]) == [worker]
    assert (worker.target_state, worker.exit_code, worker.exception) == (states.DONE, 0, None)
    tracer.flush()
    rows = [line.split(',') for line in (tmp_path / 'raptor.prof').read_text().splitlines()]
    assert [row[5] for row in rows if row[1] == 'advance' and row[4] == worker.uid] == [
        states.AGENT_EXECUTING, states.AGENT_STAGING_OUTPUT_PENDING]


def test_only_workers_that_the_application_knows_are_reported(parts: WorkerParts, notices: Notices,
                                                              tmp_path: Path) -> None:
    first, _ = divided(parts, a_worker(tmp_path))   # which a master has submitted
    parts.visible([first], states.AGENT_EXECUTING)
    assert not notices.reports


def test_the_end_of_a_part_is_reported_and_decides_if_all_fail(tmp_path: Path) -> None:
    reported: list[WorkerPart] = []
    parts = WorkerParts(reported.append, Tracer(None, 'x'), Executors(), Owner(), Transports({}, str(tmp_path)))
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


def test_all_parts_know_the_transport_and_the_first_one_how_to_start_its_carriers(
        parts: WorkerParts, notices: Notices, tmp_path: Path) -> None:
    first, second = divided(parts, a_worker(tmp_path, transport='mpi', gpus_per_rank=1.0, mem_per_rank=100))
    assert [variables(part)['RP_RAPTOR_TRANSPORT'] for part in (first, second)] == ['mpi', 'mpi']
    assert 'neither encrypted nor authenticated' in notices.told[0]
    divided(parts, a_worker(tmp_path, transport='mpi'))
    assert len(notices.told) == 1   # once
    with launchers(tmp_path) as make:
        loop = Loop()
        made = make(loop)
        made.look(loop.stop)
        loop.run()
        made.rank_program = ''   # so that scripts start the ranks
        environment = TaskEnvironment(a_context(str(tmp_path))._replace(launchers=made, cpus=(4, 5, 6)),
                                      lambda name, search_path, sandbox: name)
        scripts = plan(first, environment).scripts
        loop.close()
    job = json.loads(scripts['worker.0000.carriers.json'])
    assert job['argv'][1:5] == ['-np', '2', '-hosts', 'n3:1,n5:1']
    assert job['notes'] == f'{tmp_path}/worker.0000.carriers.ranks'
    started = scripts['worker.0000.carriers.exec.sh'].decode()
    for number, cpus in enumerate(('4-5', '6')):   # those of all ranks of the node
        share = started.partition(f'({number})\n')[2].partition(';;')[0]
        assert f"export RP_RAPTOR_CARRIER='{tmp_path}/worker.0000.carrier.{number:04d}'" in share
        assert f'taskset -pc {cpus} ' in share
        assert "export CUDA_VISIBLE_DEVICES=''" in share
    assert "export RP_RANKS='2'" in started
    assert 'ulimit' not in started
    assert not re.search('RP_RAPTOR_(RUN|SLOTS|PART)=', started)


def test_without_a_launcher_the_first_manager_gets_the_reason(parts: WorkerParts, tmp_path: Path) -> None:
    first, second = divided(parts, a_worker(tmp_path, transport='mpi'))
    environment = TaskEnvironment(a_context(), lambda name, search_path, sandbox: name)
    scripts = plan(first, environment).scripts
    assert 'needs a launch method' in json.loads(scripts['worker.0000.carriers.json'])['refused']
    assert not plan(second, environment).scripts


def test_zeromq_needs_no_carriers(parts: WorkerParts, notices: Notices, tmp_path: Path) -> None:
    first, _ = divided(parts, a_worker(tmp_path))
    assert variables(first)['RP_RAPTOR_TRANSPORT'] == 'zmq'
    environment = TaskEnvironment(a_context(), lambda name, search_path, sandbox: name)
    assert list(plan(first, environment).scripts) == ['worker.0000.job.json']
    assert not notices.told
