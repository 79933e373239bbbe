"""Losses: the processes of the agent and the nodes of the pilot that are lost, and what becomes of their tasks.

`NodeHealth` finds a node on which all tasks fail while those on the other nodes do not. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rp_agent.components.isolation import Isolation
from rp_agent.components.names import EXECUTING, STAGING_INPUT
from rp_agent.components.pool import InstancePool
from rp_agent.components.stage import Flow, Owner, Tasks
from rp_agent.nodes.remote import Remote
from rp_agent.pipeline import retry
from rp_agent.pipeline.job_end import exited
from rp_agent.task import AgentTask
from rp_api import states
from rp_api.failures.kinds import EXIT, INTERNAL, LAUNCH, LOST, MEMORY, NODE, SIGNAL, TIMEOUT
from rp_api.failures.losses import is_suspect
from rp_api.loop.event_loop import Loop

ROW = 10
"""Number of different tasks that have to fail on a node, one after the other, before it is taken out of use, and of
tasks that have to end on other nodes meanwhile."""

SHARE = 0.25
"""Largest share of those on other nodes that fails: if more fail, the tasks may be the reason."""

_COUNTED = frozenset({EXIT, SIGNAL, MEMORY, TIMEOUT, LAUNCH, LOST, INTERNAL})


class Losses:
    """The lost processes and nodes of a pilot, whose nodes have these names."""

    def __init__(self, names: Sequence[str], loop: Loop, isolation: Isolation, flow: Flow, owner: Owner) -> None:
        self._names = names
        self._loop = loop
        self._isolation = isolation
        self._flow = flow
        self._owner = owner
        self.down: set[int] = set()
        """Nodes on which no more task is placed."""
        self.spread: dict[str, str] = {}
        """Tasks on several nodes, one of which is lost, and the reason."""
        self.stopping = False
        self.job_ends = False
        """True if runs that end now are parts of the end of the job."""
        self.judges = len(names) > 1
        """True if the health of nodes is watched."""
        self._health = NodeHealth(len(names))
        self._lost_nodes: set[int] = set()   # a node may be lost that was taken out of use before

    # loss of a process

    def process_died(self, remote: Remote, pool: InstancePool[Any], tasks: Tasks, reason: str) -> None:
        """End the tasks that a component had when it died, and those that no instance is left for."""
        if pool.lost:
            # first, so that no task is placed on resources that become free now
            self._owner.broken(f'has lost its last {remote.component}: {reason}')
            tasks, pool.unassigned = tasks + pool.unassigned, []
        if remote.component == EXECUTING:
            if not pool.lost and not self.stopping:   # others can run them
                again = [task for task in tasks if retry.may_run_again(task, remote.came)]
                tasks = [task for task in tasks if task not in again]
                pool.left(again)
                self._flow.restart(again, reason)
            _end(tasks, reason, LOST)
            self._flow.executed(tasks)
        elif tasks:
            self._stage_again(remote.component, pool, tasks, reason)

    def _stage_again(self, component: str, pool: InstancePool[Any], tasks: Tasks, reason: str) -> None:
        """Give the tasks of a stager that has died to another one; end those for which that is impossible.

        Repeated actions have the same result, or fail because their source was moved. Output with `cleanup` is not
        staged again: what is missing may have been removed, or never written.
        """
        of_input = component == STAGING_INPUT
        again: list[AgentTask] = []
        ended: list[AgentTask] = []
        for task in tasks:
            if of_input:
                ends = self.stopping or task.cancelled
            else:
                ends = task.state == states.AGENT_STAGING_OUTPUT and task.description['cleanup']
            (ended if pool.lost or ends else again).append(task)
        for task in ended if self.job_ends else ():
            if of_input:
                task.cancel(reason)   # it has not started
            else:
                exited(task)   # its run is lost
        _end(ended, reason, LOST)
        if ended:
            self._flow.leave(ended)
        if again:
            self._isolation.run('staging it again', pool.put, again)

    # loss of a node

    def node_dismissed(self, remote: Remote, executors: InstancePool[Any], reason: str) -> None:
        """Place no more tasks on a lost node, and end the tasks that are on it and on others."""
        self.down.add(remote.node)
        self._flow.nodes_down([remote.node], reason)
        spread = [task for task in executors.spread.values() if remote.node in task.placement.nodes()]
        self.spread.update((task.uid, f'node {self._names[remote.node]} is lost') for task in spread)
        if spread:
            self._flow.end_runs(spread)

    def returned(self, tasks: Tasks) -> Tasks:
        """Run tasks again that a lost node has ended, if they may run again, and return the others."""
        again = []
        for task in tasks:
            reason = self.spread.pop(task.uid, None)
            if reason is not None and task.target_state == states.CANCELED and not task.cancelled:
                task.target_state = None
                again.append(task) if retry.may_run_again(task, True) else _end_of_node([task], reason)
                if task in again:
                    self._flow.restart([task], reason)
        return [task for task in tasks if task not in again]

    def node_died(self, remote: Remote, tasks: Tasks, reason: str) -> None:
        """Run the tasks of a lost node again that may run again, and end the others."""
        if remote.node not in self._lost_nodes:
            self._health.lost(remote.node)
        self._lost_nodes.add(remote.node)
        self._owner.nodes_lost([remote.node], reason)
        if len(self._lost_nodes) == len(self._names):
            self._owner.broken(f'has lost its last node: {reason}')
            self.stopping = True
        again = [task for task in tasks if not self.stopping and retry.may_run_again(task, remote.came)]
        others = [task for task in tasks if task not in again]
        lost = f'node {self._names[remote.node]} is lost: {reason}'
        _end_of_node(others, lost)
        self._flow.executed(others)
        if remote.came:
            self._flow.restart(again, lost)
        else:
            self._flow.place_again(again)

    def nodes_unusable(self, nodes: range, reason: str) -> None:
        """Take nodes out of use on which an executor cannot launch tasks any more."""
        for position in set(nodes) - self._lost_nodes:
            self._health.lost(position)
        self._lost_nodes.update(nodes)
        self.down.update(nodes)
        self._flow.nodes_down(nodes, reason)
        self._owner.nodes_lost(nodes, reason)
        if len(self._lost_nodes) == len(self._names):
            # later: the executor is about to return the tasks that wait for these nodes
            self._loop.call_soon(self._owner.broken, f'has lost its last node: {reason}')

    def judge(self, task: AgentTask) -> None:
        """Take the node of a task out of use if tasks fail there that do not fail elsewhere."""
        position = self._health.ended(task)
        if position is not None and position not in self.down:
            self.nodes_unusable(range(position, position + 1), f'it is not used any more, as the last {ROW} tasks '
                                f'on it have failed, such as {task.uid}, and those on other nodes have not')


def _end_of_node(tasks: Sequence[AgentTask], reason: str) -> None:
    """Set the final state of tasks of a lost node that do not run again."""
    for task in tasks:
        if not task.cancelled and retry.restarts(task, NODE) and is_suspect(retry.history_of(task)):
            retry.fail_suspect(task, NODE, reason)
        else:
            _end([task], reason, NODE)


def _end(tasks: Sequence[AgentTask], reason: str, kind: str) -> None:
    """Set the final state of tasks that died with a process: FAILED, or CANCELED if they were being cancelled."""
    for task in tasks:
        if task.cancelled and task.target_state is None:
            task.cancel(reason)
        else:
            task.fail(repr(RuntimeError(reason.partition('; see ')[0])), reason, kind, sentence=reason)


class NodeHealth:
    """Counts the outcome of tasks on the nodes of a pilot; tasks on several nodes do not count."""

    def __init__(self, nodes: int) -> None:
        self._failed: dict[int, dict[str, None]] = {}
        """The tasks that have failed on a node since the last success there."""
        self._since: dict[int, tuple[int, int]] = {}
        """The numbers of all tasks, and of failed ones, that had ended on all nodes before the first of these."""
        self._ended = self._failures = 0
        self._usable = nodes

    def ended(self, task: AgentTask) -> int | None:
        """Count a task that has run; return the position of its node if that is to be taken out of use."""
        failed = task.error is not None and task.error['kind'] in _COUNTED
        if not failed and (not self._failed or task.target_state != states.DONE):
            return None
        position = _only_node(task)
        if position is None:
            return None
        before = self._ended, self._failures
        self._ended += 1
        self._failures += failed
        if not failed:
            self._failed.pop(position, None)
            return None
        if position not in self._failed:
            self._since[position] = before
        row = self._failed.setdefault(position, {})
        row[task.uid] = None
        if len(row) >= ROW and self._usable > 1 and self._is_alone(position, len(row)):
            return position
        return None

    def lost(self, position: int) -> None:
        """Note that a node is not used any more."""
        self._usable -= 1
        self._failed.pop(position, None)

    def _is_alone(self, position: int, failed: int) -> bool:
        """Return whether tasks on other nodes have succeeded while this node has failed."""
        ended, failures = self._since[position]
        elsewhere = self._ended - ended - failed
        return elsewhere >= ROW and self._failures - failures - failed <= SHARE * elsewhere


def _only_node(task: AgentTask) -> int | None:
    """Return the position of the node of a task; None if it has several, or none."""
    nodes = set(task.placement.nodes()) if task.placement is not None else set()
    return nodes.pop() if len(nodes) == 1 else None
