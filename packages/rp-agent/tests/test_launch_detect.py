"""Launchers as they are found: what they are, which version, and what is said of those that cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from agent_support import wait_until
from launch_method_support import SETTING, on
from launch_support import is_gone
from programs_support import program, says

from rp_agent.launch_method import find
from rp_agent.launch_method.base import LaunchMethod, Program
from rp_agent.launch_method.mpi_library import MPICH, OPEN_MPI, Linked
from rp_agent.launch_method.srun import VERBOSE, Srun
from rp_agent.launch_method.system import LaunchSystem
from rp_api.errors import PlatformError
from rp_api.platforms.systems import LAUNCH_METHODS

# what real ones print
OPEN_MPI_5 = 'mpirun (Open MPI) 5.0.3\n\nReport bugs to https://www.open-mpi.org/community/help/'
DEBIAN = 'mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/'
SPECTRUM = 'mpirun (IBM Spectrum MPI) 10.4.0.03rtm4\n\nReport bugs to https://www.ibm.com/support'
HYDRA = 'HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: Thu Apr  7 2022'
INTEL = ('Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307 (id: d82b3071db)\n'
         'Copyright 2003-2023, Intel Corporation.')
PALS = 'PALS (version 1.2.12)'


@pytest.fixture
def system(tmp_path: Path) -> LaunchSystem:
    """A host that has the programs in `tmp_path`, and the usual ones; it waits for 2 s."""
    return LaunchSystem({'PATH': f'{tmp_path}:/usr/bin:/bin'}, timeout=2)


def detect(name: str, system: LaunchSystem) -> LaunchMethod:
    return find.find(name).detect(system, SETTING)


def complaint(name: str, system: LaunchSystem) -> str:
    with pytest.raises(PlatformError) as caught:
        detect(name, system)
    return str(caught.value)


@pytest.mark.parametrize(('said', 'flavour', 'version', 'rank_variable'), [
    (OPEN_MPI_5, 'Open MPI', '5.0.3', 'OMPI_COMM_WORLD_RANK'), (DEBIAN, 'Open MPI', '4.1.4', 'OMPI_COMM_WORLD_RANK'),
    (SPECTRUM, 'Spectrum MPI', '10.4.0.03rtm4', 'OMPI_COMM_WORLD_RANK'), (HYDRA, 'Hydra', '4.0.2', 'PMI_RANK'),
    (INTEL, 'Intel MPI', '2021.9', 'PMI_RANK'), (PALS, 'PALS', '1.2.12', 'PALS_RANKID')])
def test_flavours(said: str, flavour: str, version: str, rank_variable: str, system: LaunchSystem,
                  tmp_path: Path) -> None:
    path = program(tmp_path / 'mpirun', says(said))
    method = detect('MPIRUN', system)
    assert method.program == Program(str(path), version, flavour)
    assert method.rank_variables[0] == rank_variable
    assert str(method) == f'MPIRUN ({path} {flavour} {version})'


def test_a_launcher_that_knows_another_option(system: LaunchSystem, tmp_path: Path) -> None:
    program(tmp_path / 'mpiexec', f'test "$1" = -info || {{ echo unknown option; exit 255; }}\n{says(HYDRA)}')
    assert detect('MPIEXEC', system).program.flavour == 'Hydra'


def test_pals_is_known_by_its_place(tmp_path: Path) -> None:
    program(tmp_path / 'pals/1.0/bin/mpiexec', 'exit 1')
    system = LaunchSystem({'PATH': f'{tmp_path}/pals/1.0/bin:/usr/bin:/bin'})
    assert detect('MPIEXEC', system).program.flavour == 'PALS'


def test_one_that_is_broken_is_not_replaced_by_that_of_another_mpi(tmp_path: Path) -> None:
    program(tmp_path / 'mpirun', 'echo libmpi.so is missing >&2; exit 127')
    program(tmp_path / 'mpirun.mpich', f'exec /bin/echo "{HYDRA}"')
    said = complaint('MPIRUN', LaunchSystem({'PATH': str(tmp_path)}))
    assert 'failed with exit code 127: libmpi.so is missing' in said


def test_a_program_of_that_name_that_is_no_launcher(tmp_path: Path) -> None:
    path = program(tmp_path / 'mpirun', 'echo What do you want?')
    words = complaint('MPIRUN', LaunchSystem({'PATH': str(tmp_path)}))
    assert words.startswith(f'{path} is not a known launcher (Open MPI, Spectrum MPI, Hydra, Intel MPI, PALS): ')
    assert f'`{path} --version` printed: What do you want?' in words


def test_garbage_is_no_answer(tmp_path: Path) -> None:
    program(tmp_path / 'mpirun', 'exec /usr/bin/head -c 200000 /dev/urandom')
    assert 'is not a known launcher' in complaint('MPIRUN', LaunchSystem({'PATH': str(tmp_path)}))


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    path = program(tmp_path / 'srun', 'echo srun: fatal: no configuration; exit 1')
    assert complaint('SRUN', LaunchSystem({'PATH': str(tmp_path)})) == (
        f'`{path} --version` failed with exit code 1: srun: fatal: no configuration')


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    path = program(tmp_path / 'srun', f'/bin/sleep 1000 &\necho $! >{tmp_path}/pid\necho asking\nwait')
    assert complaint('SRUN', LaunchSystem({'PATH': str(tmp_path)}, timeout=0.5)) == (
        f'`{path} --version` has not ended after 0.5 seconds: asking')
    wait_until(lambda: is_gone(int((tmp_path / 'pid').read_text())), 'sleep')


def test_nobody_waits_for_what_a_program_leaves_behind(system: LaunchSystem, tmp_path: Path) -> None:
    program(tmp_path / 'srun', f'/bin/sleep 1000 &\necho $! >{tmp_path}/pid\necho slurm 23.11.4')
    try:
        assert detect('SRUN', system).program.version == '23.11.4'
    finally:
        os.kill(int((tmp_path / 'pid').read_text()), 9)


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / 'srun').write_text('no program')
    (tmp_path / 'srun').chmod(0o755)
    assert complaint('SRUN', LaunchSystem({'PATH': str(tmp_path)})) == (
        f'`{tmp_path}/srun --version` cannot be run: Exec format error')


@pytest.mark.parametrize('name', sorted(set(LAUNCH_METHODS) - {'FORK'}))
def test_a_launcher_that_is_missing(name: str, tmp_path: Path) -> None:
    assert complaint(name, LaunchSystem({'PATH': str(tmp_path)})).endswith(f' is not in PATH ({tmp_path})')


@pytest.mark.parametrize(('plugin', 'told'), [('task/none', False), ('cgroup,task/affinity', True), ('', True)])
def test_slurm_is_told_to_bind_nothing_where_it_would(plugin: str, told: bool, system: LaunchSystem,
                                                         tmp_path: Path) -> None:
    program(tmp_path / 'srun', 'echo slurm-wlm 22.05.8')
    program(tmp_path / 'scontrol', f'echo "TaskPlugin              = {plugin}"' if plugin else 'exit 1')
    method = detect('SRUN', system)
    assert method.program.numbers == (22, 5, 8)
    assert ('--cpu-bind=none' in method.command(on(0), ['true']).argv) == told


TYPES = ('MPI plugin types are...\n\tnone\n\tpmi2\n\tcray_shasta\n\tpmix\n'
         'specific pmix plugin versions available: pmix_v4')


def srun(directory: Path, types: str, default: str) -> None:
    """A Slurm that has these types of PMI."""
    program(directory / 'srun', f"case $1 in (--mpi=list) cat <<'END'\n{types}\nEND\n;; (*) echo slurm 22.05.8 ;; esac")
    program(directory / 'scontrol', f'echo "MpiDefault              = {default}"')


@pytest.mark.parametrize(('default', 'types', 'library', 'pmi'), [
    ('none', TYPES, MPICH, 'pmi2'), ('none', TYPES, OPEN_MPI, 'pmix'), ('none', TYPES, '', 'pmi2'),
    ('pmix', TYPES, MPICH, 'pmi2'), ('pmix', TYPES, OPEN_MPI, ''), ('pmix_v4', TYPES, OPEN_MPI, ''),
    ('pmix', TYPES, '', ''),
    ('pmi2', TYPES, MPICH, ''), ('pmi2', TYPES, OPEN_MPI, ''), ('cray_shasta', TYPES, MPICH, ''),
    ('none', 'srun: MPI types are...\nsrun: none\nsrun: pmi2', MPICH, 'pmi2'), ('none', 'unknown', MPICH, ''),
    ('none', TYPES.replace('pmi2', 'x').replace('cray_shasta', 'y'), MPICH, None), ('none', 'a:\n none\n', '', ''),
    ('none', 'a:\n none\n', OPEN_MPI, None)])
def test_srun_connects_ranks_by_the_pmi_of_their_library(
        system: LaunchSystem, tmp_path: Path, default: str, types: str, library: str, pmi: str | None) -> None:
    srun(tmp_path, types, default)
    method = detect('SRUN', system)
    linked = Linked('/bin/prog', library, 'libmpi.so') if library else None
    asked = ['--mpi=' + pmi] if pmi else []
    several = on(0, 1, linked=linked)
    if pmi is None and linked:
        assert f'/bin/prog uses {library} (libmpi.so), whose ranks find each other by' in method.refuses(several)
    else:
        assert method.refuses(several) == ''
        assert [word for word in method.command(several, ['true']).argv if word.startswith('--mpi')] == asked
    for other in (on(0, linked=linked), on(0, 1, mpi=False, linked=linked)):
        assert method.refuses(other) == ''
        assert not [word for word in method.command(other, ['true']).argv if word.startswith('--mpi')]


def test_a_pmi_that_was_chosen_is_left_alone(system: LaunchSystem, tmp_path: Path) -> None:
    """A variable is a default, which a step may have set in which the application runs."""
    srun(tmp_path, TYPES, 'none')
    method = Srun.detect(system, SETTING, {'arguments': ['--mpi=x']})
    assert [word for word in method.command(on(0, 1), ['true']).argv if word.startswith('--mpi')] == ['--mpi=x']
    assert not method.asks_library
    for library, pmis in ((OPEN_MPI, []), (MPICH, ['--mpi=pmi2'])):
        method = Srun.detect(LaunchSystem({**system.environ, 'SLURM_MPI_TYPE': 'pmix'}), SETTING)
        command = method.command(on(0, 1, linked=Linked('/bin/prog', library, 'libmpi.so')), ['true'])
        assert [word for word in command.argv if word.startswith('--mpi')] == pmis


def test_srun_says_more_where_it_is_asked_to(tmp_path: Path) -> None:
    program(tmp_path / 'srun', 'echo slurm 23.11.4')
    method = detect('SRUN', LaunchSystem({'PATH': f'{tmp_path}:/usr/bin:/bin', VERBOSE: ''}))
    assert method.command(on(0), ['true']).environment == {'SLURM_DEBUG': '1', 'SLURM_CPU_BIND': 'verbose'}


def test_ssh_may_be_a_link_to_rsh(tmp_path: Path) -> None:
    program(tmp_path / 'rsh', 'exit 0')
    (tmp_path / 'ssh').symlink_to('rsh')
    method = detect('SSH', LaunchSystem({'PATH': str(tmp_path)}))
    assert method.command(on(0), ['true']).argv == (f'{tmp_path}/ssh', 'nid00001', 'true')


def test_prun_is_preferred_to_what_stands_in_for_it(system: LaunchSystem, tmp_path: Path) -> None:
    program(tmp_path / 'prte', 'exit 0')
    program(tmp_path / 'prterun', 'echo "prterun (PRRTE) 3.0.14"')
    assert detect('PRTE', system).program.flavour == 'prterun'
    program(tmp_path / 'prun', 'echo "prun (PRRTE) 3.0.2"')
    assert detect('PRTE', system).program == Program(f'{tmp_path}/prun', '3.0.2', 'prun')


def test_flux(system: LaunchSystem, tmp_path: Path) -> None:
    program(tmp_path / 'flux', says('commands:    \t\t0.66.0\nlibflux-core:\t\t0.66.0'))
    assert detect('FLUX', system).program.version == '0.66.0'
    program(tmp_path / 'flux', 'echo f.lux')
    assert complaint('FLUX', system) == f'`{tmp_path}/flux version` did not print the version of Flux: f.lux'


def test_mpirun_in_the_cluster_mode_of_cray(system: LaunchSystem, tmp_path: Path) -> None:
    program(tmp_path / 'mpirun', says(OPEN_MPI_5))
    assert complaint('MPIRUN_CCMRUN', system).startswith('ccmrun is not in PATH')
    program(tmp_path / 'ccmrun', 'exit 0')
    argv = detect('MPIRUN_CCMRUN', system).command(on(0, 0), ['true']).argv
    assert argv[:2] == (f'{tmp_path}/ccmrun', f'{tmp_path}/mpirun')


@pytest.mark.parametrize('name', ['MPIRUN', 'PRTE'])
def test_steps_of_launchers_do_not_wait_for_each_other_in_a_job_of_slurm(name: str, tmp_path: Path) -> None:
    program(tmp_path / 'mpirun', says(HYDRA))
    program(tmp_path / 'prte', 'exit 0')
    program(tmp_path / 'prun', 'echo "prun (PRRTE) 3.0.2"')
    environ = {'PATH': f'{tmp_path}:/usr/bin:/bin'}
    assert find.detect_one(name, {}, SETTING, LaunchSystem(environ)).environment == {}
    method = find.detect_one(name, {'pre_exec': ['A=1', 'export A']}, SETTING,
                             LaunchSystem(environ | {'SLURM_JOB_ID': '7'}))
    assert method.environment == {'SLURM_OVERLAP': '1', 'SLURM_OVERCOMMIT': '1', 'A': '1'}


def test_this_host_is_a_node_of_slurm(tmp_path: Path) -> None:
    assert {'localhost', os.uname().nodename, 'n7'} <= LaunchSystem({'SLURMD_NODENAME': 'n7'}).names


def test_places_of_ibrun_count_from_the_first_node_of_the_job(tmp_path: Path) -> None:
    """Not from that of the pilot, which may have fewer nodes."""
    program(tmp_path / 'ibrun', 'exit 0')
    job_of_slurm = {'SLURM_JOB_NODELIST': 'c[1-2],nid[00001-00002]', 'SLURM_JOB_CPUS_PER_NODE': '4(x4)'}
    method = detect('IBRUN', LaunchSystem({'PATH': str(tmp_path), **job_of_slurm}))
    assert method.command(on(0, 0), ['true']).argv[:5] == (f'{tmp_path}/ibrun', '-n', '2', '-o', '4')
    elsewhere = detect('IBRUN', LaunchSystem({'PATH': str(tmp_path)}))
    assert elsewhere.command(on(0, 0), ['true']).argv[4] == '0'


def test_hosts_of_resource_files_count_from_the_first_compute_node_of_the_job(tmp_path: Path) -> None:
    program(tmp_path / 'jsrun', 'exit 0')
    job_of_lsf = {'LSB_MCPU_HOSTS': 'batch1 1 a1 42 nid00001 42'}
    method = detect('JSRUN_ERF', LaunchSystem({'PATH': str(tmp_path), **job_of_lsf}))
    assert 'host: 2;' in next(iter(method.command(on(0), ['true']).files.values()))
