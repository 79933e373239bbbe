"""Services on another host than their users and the agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from batch_pilots import platform
from conftest import processes_with
from remote_slurm import Remote

PROGRAM = str(Path(__file__).with_name('service_application.py'))
CONNECTING = str(Path(__file__).with_name('connecting_application.py'))


def test_services_on_another_host(remote: Remote, base: Path) -> None:
    """The agent sees the port and the output of a service there, and starts it again."""
    nodes = base / 'nodes'
    nodes.write_text('h1\nh1\nh2\nh2\n')
    environ = remote.hosts.environ | platform(
        base, 'fork://localhost/', 'TORQUE', cores_per_node=2, launch_methods={'order': ['SSH'], 'SSH': {}})
    done = subprocess.run([*remote.prefix, sys.executable, PROGRAM, str(base)], cwd=base, text=True, timeout=55,
                          env=os.environ | dict(environ) | {'PBS_JOBID': '1', 'PBS_NODEFILE': str(nodes)},
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    url, lines = told['infos']
    assert url.startswith('http://h2:')
    assert lines == 'listens'
    first, second = told['users']
    assert [first[:2], first[3]] == [second[:2], second[3]] == [['h1', url], 'listens'], told
    assert first[2] != second[2]
    assert told['states'] == ['AGENT_EXECUTING'] * 2


def test_the_application_reaches_a_service_through_a_tunnel(remote: Remote, base: Path) -> None:
    environ = remote.hosts.environ | platform(base, 'ssh://h2/', 'FORK', filesystem_endpoint='sftp://h2/',
                                              fake_resources=True)
    done = subprocess.run([*remote.prefix, sys.executable, CONNECTING, str(base)], cwd=base, text=True, timeout=55,
                          env=os.environ | dict(environ), capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told['url'].startswith('http://127.0.0.1:')
    assert told['url'] != told['info']
    assert told['again'] == told['url']
    assert told['pid'] > 1
    assert processes_with(f'-L{told["url"].removeprefix("http://").rstrip("/")}:') == {}
