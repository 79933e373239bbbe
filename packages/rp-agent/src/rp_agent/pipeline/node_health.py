"""Health of nodes: finds a node on which all tasks fail while those on the other nodes do not. No I/O, no clock."""

from __future__ import annotations

from rp_agent.task import AgentTask
from rp_api import states
from rp_api.failures.kinds import EXIT, INTERNAL, LAUNCH, LOST, MEMORY, SIGNAL, TIMEOUT

ROW = 10
"""Number of different tasks that have to fail on a node, one after the other, before it is taken out of use, and of
tasks that have to end on other nodes meanwhile."""

SHARE = 0.25
"""Largest share of those on other nodes that fails: if more fail, the tasks may be the reason."""

_COUNTED = frozenset({EXIT, SIGNAL, MEMORY, TIMEOUT, LAUNCH, LOST, INTERNAL})


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
