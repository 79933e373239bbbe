"""What CI leaves out of the tests, as a plugin of pytest: `python -m pytest -p tests.short_form`.

These are tests marked `long`, and two of three parameters of tests whose parameters are surroundings. The environment
variable TEST_ORDER is the seed by which they are drawn: each run tries others.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict

import pytest

SHARE = 3   # one of so many parameters is tried, at least one of each test
DRAWN = (
    *(f'tests/{name}' for name in ('attack', 'batch_stand_ins', 'bootstrap', 'conformance', 'containers', 'fault',
                                   'mpi', 'security', 'sge', 'slurm', 'ssh', 'system')),
    *(f'packages/rp-agent/tests/test_{name}.py' for name in (
        'ends_with_its_task', 'launch_faults', 'launched_tasks', 'node_agents', 'odd_tasks', 'pipeline',
        'policies_random', 'task_texts')),
    'packages/rp-api/tests/test_hub_faults.py', 'packages/rp-profiling/tests/test_profiling_analysis.py',
    'packages/rp-raptor/tests/test_worker_whole.py', 'packages/rp-raptor/tests/test_objects_whole.py')
"""Tests whose parameters are coordinators, batch systems, executors, layouts and the like, and take seconds each."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the short form leaves out."""
    seed = os.environ.get('TEST_ORDER', '')
    same: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        same[item.nodeid.partition('[')[0]].append(item)
    kept = set()
    for name, group in same.items():
        if group[0].get_closest_marker('long') is None:
            is_drawn = name.startswith(DRAWN)
            count = -(-len(group) // SHARE) if is_drawn else len(group)
            kept.update(random.Random(f'{seed} {name}').sample(group, count))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
