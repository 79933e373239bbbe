"""A RAPTOR worker over hosts of their own networks, whose managers the sub-agents start that ssh has started."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from batch_pilots import platform
from pilot_run import run
from remote_slurm import Remote

RAPTOR = Path(__file__).parents[1] / 'raptor_application.py'


def test_a_worker_on_both_hosts(remote: Remote, base: Path) -> None:
    """Ranks that are killed are started again, and each call has one result."""
    nodes = base / 'nodes'
    nodes.write_text('h1\n' * 4 + 'h2\n' * 4)
    environ = remote.hosts.environ | platform(
        base, 'fork://localhost/', 'TORQUE', cores_per_node=4, launch_methods={'order': ['SSH'], 'SSH': {}})
    told = run(environ | {'PBS_JOBID': '1', 'PBS_NODEFILE': str(nodes)}, base, remote.prefix, 'DefaultWorker', '7',
               program=RAPTOR)
    assert told['state'] == 'AGENT_EXECUTING', told
    assert Counter(host for host, _ in {tuple(place) for place in told['places']}) == {'h1': 3, 'h2': 4}
    assert Counter(told['slots']) == {'h1': 3, 'h2': 4}
    assert told['large']
    assert {tuple(each) for each in told['objects']} == {('h1', 1, 3_000_000), ('h2', 1, 3_000_000)}   # fetched once
    assert len(told['after']) == 200
    assert told['then'] == 'AGENT_EXECUTING'
