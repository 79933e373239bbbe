"""The commands of launch methods, run by real launchers on several hosts: each rank must come up where it belongs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import SYSTEM_PATH, require
from ssh_hosts import Namespaces, namespaces

from rp_agent.launch_method.base import Job, LaunchMethod, Rank, Setting
from rp_agent.launch_method.mpirun import Mpirun, recognised
from rp_agent.launch_method.single import Ssh
from rp_agent.launch_method.system import LaunchSystem

LAUNCHERS = {'Open MPI': 'mpirun.openmpi', 'Hydra': 'mpiexec.hydra'}

PLACES = [('h1', 'h1', 'h2', 'h2'), ('h1', 'h2', 'h2', 'h2'), ('h3', 'h1', 'h2'), ('h1', 'h2', 'h1'), ('h2',)]


@pytest.fixture(scope='module')
def hosts() -> Iterator[Namespaces]:
    """Three hosts."""
    require(*LAUNCHERS.values())
    with namespaces(3) as found:
        found.open()
        yield found


def mpirun(flavour: str, hosts: Namespaces) -> LaunchMethod:
    system = LaunchSystem({**os.environ, 'PATH': SYSTEM_PATH, **hosts.environ})
    path = shutil.which(LAUNCHERS[flavour], path=SYSTEM_PATH)
    assert path is not None
    method = Mpirun(recognised(system, path), Setting(), as_root=system.is_root)
    assert method.program.flavour == flavour
    return method


def run(method: LaunchMethod, job: Job, script: str, hosts: Namespaces, check: bool = True) -> list[str]:
    """The lines that the ranks print, sorted; the launcher runs on the first host."""
    execute = Path(job.sandbox) / 'rank.sh'
    execute.write_text(script)
    command = method.command(job, ('/bin/sh', str(execute)))
    for name, text in command.files.items():
        (Path(job.sandbox) / name).write_text(text)
    variables = [f'{name}={value}' for name, value in command.environment.items()]
    environ = ('env', *variables, 'MY_INPUT=a b')
    return sorted(hosts.run(*hosts.prefix('h1'), *environ, *command.argv, check=check).splitlines())


def job(sandbox: Path, *nodes: str, **values: object) -> Job:
    ranks = tuple(Rank(node, int(node[1:]) - 1) for node in nodes)
    return Job('task.0', str(sandbox), ranks, variables=('MY_INPUT',),
               **{'mpi': len(ranks) > 1, **values})   # type: ignore[arg-type]


@pytest.mark.parametrize('nodes', PLACES, ids=','.join)
@pytest.mark.parametrize('flavour', LAUNCHERS)
def test_ranks_are_where_they_belong(flavour: str, nodes: tuple[str, ...], hosts: Namespaces, tmp_path: Path) -> None:
    method = mpirun(flavour, hosts)
    rank, size = method.rank_variables[0], method.size_variables[0]
    found = run(method, job(tmp_path, *nodes), f'echo "${rank} of ${size} $(hostname) $MY_INPUT"', hosts)
    assert found == [f'{number} of {len(nodes)} {node} a b' for number, node in enumerate(nodes)]


@pytest.mark.parametrize('flavour', LAUNCHERS)
def test_ranks_that_are_not_mpi_go_on_when_one_fails(flavour: str, hosts: Namespaces, tmp_path: Path) -> None:
    method = mpirun(flavour, hosts)
    rank = method.rank_variables[0]
    script = f"""cd {tmp_path}
test "${rank}" != 1 || {{ touch failed; exit 3; }}
until test -e failed; do sleep 0.05; done
echo "${rank} went on" """
    found = run(method, job(tmp_path, 'h1', 'h2', 'h2', mpi=False), script, hosts, check=False)
    assert [line for line in found if 'went on' in line] == ['0 went on', '2 went on']


def test_a_process_on_another_host_by_ssh(hosts: Namespaces, tmp_path: Path) -> None:
    method = Ssh.detect(LaunchSystem({**os.environ, **hosts.environ}), Setting())
    sandbox = tmp_path / "it's $HOME"
    sandbox.mkdir()
    assert run(method, job(sandbox, 'h2'), 'echo "$(hostname) ${MY_INPUT-not told}"', hosts) == ['h2 not told']
