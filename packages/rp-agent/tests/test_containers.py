"""The command lines of container tools, and the plans of tasks in containers, without starting any."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from executor_support import BASE_ENV, a_context, a_task

from rp_agent.executor.launching.containers import Bind, Box, apptainer, charliecloud, podman, singularity
from rp_agent.executor.launching.environment import TaskEnvironment
from rp_agent.executor.launching.plan import DIRECT, EXEC, LaunchPlan, plan
from rp_agent.lookup import LaunchRefused
from rp_agent.task import AgentTask

PILOT = '/base/session/pilot.0000'
BINDS = Bind('/pilot', '/pilot'), Bind('/data', '/input', 'ro')


def find(name: str, search_path: str, sandbox: str) -> str:
    """A node that has all tools."""
    return name if name.startswith('/') else f'{search_path.split(":")[0]}/{name}'


def find_only(*tools: str) -> Any:
    """A node that has these tools."""
    def looked_for(name: str, search_path: str, sandbox: str) -> str:
        if name in tools or name.startswith('/'):
            return os.path.join('/usr/bin', name)
        raise LaunchRefused(f'executable not found: {name}')
    return looked_for


def planned(task: AgentTask, finds: Any = find, tool: str = '', **variables: Any) -> LaunchPlan:
    context = a_context(USER='me', **variables)._replace(container_tool=tool)
    return plan(task, TaskEnvironment(context, finds))


def words(task: AgentTask, *args: Any, **more: Any) -> list[str]:
    """The command line of the only rank, without a shell."""
    launch_plan = planned(task, *args, **more)
    assert launch_plan.kind == DIRECT
    return [word.decode() for word in launch_plan.processes[0].argv]


@pytest.mark.parametrize('tool', ['apptainer', 'podman', 'charliecloud'])
def test_literal_arguments(tool: str) -> None:
    task = a_task(executable='/bin/$run', arguments=['$A', r'\$A', '`date`'], environment={'A': '$B'},
                  literal_arguments=True, container={'image': 'docker://x', 'tool': tool})
    found = words(task, find, PROGRAM='/bin/run')
    assert found[-4:] == ['/bin/$run', '$A', r'\$A', '`date`']
    assert task.description['arguments'] == ['$A', r'\$A', '`date`']


# command lines

def test_apptainer() -> None:
    box = Box('/usr/bin/apptainer', 'docker://debian', False, '/work', BINDS, 'nvidia', ('A',))
    assert apptainer(box) == (
        ['/usr/bin/apptainer', 'exec', '--pwd=/work', '--bind=/pilot', '--bind=/data:/input:ro', '--nv',
         'docker://debian'], {'APPTAINERENV_A': '${A}'})
    assert '--rocm' in apptainer(box._replace(gpu='rocm')).words


def test_singularity_has_the_options_of_apptainer_and_its_own_variables() -> None:
    box = Box('singularity', 'image.sif', True, '/work', BINDS, '', ('A',))
    assert singularity(box) == (['singularity', 'exec', '--pwd=/work', '--bind=/pilot', '--bind=/data:/input:ro',
                                 'image.sif'], {'SINGULARITYENV_A': '${A}'})


def test_podman_of_a_user() -> None:
    box = Box('podman', 'docker.io/library/debian', False, '/work', BINDS, '', ('A',), user=(1000, 100))
    assert podman(box) == (
        ['podman', 'run', '--rm', '--init', '--cgroups=disabled', '--log-driver=none', '--network=host', '--ipc=host',
         '--uts=host', '--security-opt=label=disable', '--entrypoint=', '--user=1000:100',
         '--workdir=/work', '--env-host', '--userns=keep-id', '--group-add=keep-groups', '--env=A',
         '--volume=/tmp:/tmp', '--volume=/pilot:/pilot', '--volume=/data:/input:ro', 'docker.io/library/debian'], {})


def test_podman_with_a_directory_as_root_keeps_changes_out_of_it() -> None:
    box = Box('podman', '/image', True, '/work', user=(0, 0))
    assert podman(box).words[-2:] == ['--rootfs', '/image:O']
    assert '--userns=keep-id' not in podman(box).words


def test_podman_passes_devices_of_gpus_on() -> None:
    box = Box('podman', 'image', False, '/work')
    assert '--device=nvidia.com/gpu=all' in podman(box._replace(gpu='nvidia')).words
    assert {'--device=/dev/kfd', '--device=/dev/dri'} <= {*podman(box._replace(gpu='rocm')).words}


def test_podman_mounts_one_directory_at_tmp() -> None:
    box = Box('podman', 'image', False, '/work', (Bind('/scratch', '/tmp'),))
    assert [word for word in podman(box).words if word.startswith('--volume')] == ['--volume=/scratch:/tmp']


def test_charliecloud() -> None:
    box = Box('ch-run', '/image', True, '/work', (Bind('/pilot', '/pilot'), Bind('/data', '/input')), '', ('A',), True)
    assert charliecloud(box) == (
        ['ch-run', '--cd=/work', '--env-no-expand', '--bind=/pilot', '--bind=/data:/input', '--set-env',
         '--set-env=A=${A}', '/image', '--'], {})


def test_charliecloud_keeps_tmpdir_and_gets_the_user() -> None:
    box = Box('ch-run', '/image', True, '/work', scratch='/scratch', login='me')
    assert charliecloud(box) == (
        ['ch-run', '--cd=/work', '--env-no-expand', '--set-env=TMPDIR=/scratch', '/image', '--'],
        {'USER': 'me', 'TMPDIR': '/tmp'})


def test_ranks_of_an_mpi_task_share_a_container_of_charliecloud() -> None:
    box = Box('ch-run', '/image', True, '/work', peers=3, tag='task.000000.ab12')
    assert charliecloud(box).words == ['ch-run', '--cd=/work', '--env-no-expand', '--join-ct=3',
                                       '--join-tag=task.000000.ab12', '/image', '--']
    assert 'join' not in ' '.join(charliecloud(box._replace(peers=1)).words)


# plans

def test_a_task_in_a_container_needs_no_shell() -> None:
    task = a_task(executable='prog', arguments=['a b', '$HOME'],
                  container={'image': 'docker://debian', 'tool': 'apptainer', 'binds': ['/data:/input:ro']})
    assert words(task) == ['/usr/bin/apptainer', 'exec', '--pwd=/sandbox', f'--bind={PILOT}', '--bind=/sandbox',
                           '--bind=/data:/input:ro', 'docker://debian', 'prog', 'a b', '/nowhere']
    assert task.description['executable'] == 'prog', 'the description of the task has changed'


def test_a_sandbox_in_the_sandbox_of_the_pilot_is_not_mounted_twice() -> None:
    found = words(a_task(f'{PILOT}/task.000000', container={'image': 'docker://debian', 'tool': 'apptainer'}))
    assert found[3:5] == [f'--bind={PILOT}', 'docker://debian']


def test_variables_of_the_description_take_precedence_over_those_of_the_image() -> None:
    task = a_task(environment={'A': '$HOME/x', 'not-an-identifier': '1'},
                  container={'image': 'docker://debian', 'tool': 'apptainer'})
    block = [entry.decode() for entry in planned(task).processes[0].env]
    assert {'A=/nowhere/x', 'APPTAINERENV_A=/nowhere/x', 'not-an-identifier=1'} <= {*block}
    assert not any(entry.startswith('APPTAINERENV_not') for entry in block)


def test_commands_run_outside_of_the_container() -> None:
    task = a_task(executable='prog', pre_exec=['module load apptainer'],
                  container={'image': 'docker://debian', 'tool': 'apptainer'})
    launch_plan = planned(task, find_only())   # the commands may change PATH
    assert launch_plan.kind == EXEC
    lines = launch_plan.scripts['task.000000.exec.sh'].decode().splitlines()
    assert 'module load apptainer' in lines
    assert any(line.startswith('"apptainer" "exec" ') and '"docker://debian" "prog"' in line for line in lines)


def test_the_tool_is_that_of_the_description_of_the_platform_or_the_first_found() -> None:
    task = a_task(container={'image': 'docker://debian'})
    assert words(task, find_only('podman', 'ch-run'))[0] == '/usr/bin/podman'
    assert words(task, find_only('podman', 'ch-run'), 'charliecloud')[0] == '/usr/bin/ch-run'
    task.description['container'] = {'image': 'docker://debian', 'tool': 'podman'}
    assert words(task, find_only('podman', 'ch-run'), 'charliecloud')[0] == '/usr/bin/podman'


@pytest.mark.parametrize(('tool', 'named'), [('charliecloud', 'ch-run'), ('podman', 'podman'),
                                             ('', 'apptainer, singularity, podman, ch-run')])
def test_a_missing_tool_is_named(tool: str, named: str) -> None:
    with pytest.raises(LaunchRefused, match=f'no container tool \\({named} in PATH /usr/bin:/bin\\)'):
        planned(a_task(container={'image': 'docker://debian', 'tool': tool}), find_only())


@pytest.mark.parametrize('tool', ['apptainer', 'singularity', 'podman', 'charliecloud'])
def test_a_missing_image_is_named(tool: str) -> None:
    with pytest.raises(LaunchRefused, match='image of the container does not exist: /no/image'):
        planned(a_task(container={'image': '/no/image', 'tool': tool}))


def test_the_path_of_an_image_is_relative_to_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / 'image.sif').touch()
    found = words(a_task(tmp_path, container={'image': 'image.sif', 'tool': 'apptainer'}))
    assert found[-2:] == [f'{tmp_path}/image.sif', '/bin/true']


def test_variables_in_the_path_of_an_image_are_expanded(tmp_path: Path) -> None:
    (tmp_path / 'image').mkdir()
    found = words(a_task(container={'image': '$IMAGES/image', 'tool': 'podman'}), IMAGES=str(tmp_path))
    assert found[-2:] == [f'{tmp_path}/image:O', '/bin/true']


def test_charliecloud_gets_mount_points_and_the_variables_of_the_image(tmp_path: Path) -> None:
    image = tmp_path / 'image'
    (image / 'ch').mkdir(parents=True)
    (image / 'ch' / 'environment').touch()
    (tmp_path / 'file').touch()
    found = words(a_task(tmp_path / 'task', container={
        'image': str(image), 'tool': 'charliecloud', 'binds': [f'{tmp_path}/file:/in/file', '/usr:/in/usr']}))
    assert found[-4:] == ['--set-env', str(image), '--', '/bin/true']
    assert (image / 'in' / 'file').is_file()
    assert (image / 'in' / 'usr').is_dir()
    assert Path(f'{image}{PILOT}').is_dir()


def test_mount_points_are_never_created_outside_of_the_image(tmp_path: Path) -> None:
    image, outside = tmp_path / 'image', tmp_path / 'outside'
    image.mkdir()
    outside.mkdir()
    (image / 'base').symlink_to(outside)
    with pytest.raises(LaunchRefused, match='symbolic link out of the image'):
        planned(a_task(container={'image': str(image), 'tool': 'charliecloud'}))
    assert not list(outside.iterdir())


def test_an_image_without_a_mount_point_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / 'base').touch()   # a file where a directory is needed
    with pytest.raises(LaunchRefused, match=f'ch-run needs {PILOT} in the image {tmp_path}'):
        planned(a_task(container={'image': str(tmp_path), 'tool': 'charliecloud'}))


def test_charliecloud_cannot_mount_read_only(tmp_path: Path) -> None:
    with pytest.raises(LaunchRefused, match="Charliecloud cannot mount read-only: '/data:/data:ro'"):
        planned(a_task(container={'image': str(tmp_path), 'tool': 'charliecloud', 'binds': ['/data:ro']}))


def test_paths_that_no_tool_can_mount() -> None:
    with pytest.raises(LaunchRefused, match='cannot mount a path with a colon or a comma: /sand:box'):
        planned(a_task('/sand:box', container={'image': 'docker://debian', 'tool': 'apptainer'}))


def test_tmpdir_is_mounted_at_its_own_path() -> None:
    found = words(a_task(container={'image': 'docker://debian', 'tool': 'apptainer'}), TMPDIR='/scratch/me')
    assert '--bind=/scratch/me' in found
    found = words(a_task(container={'image': 'docker://debian', 'tool': 'apptainer'}), TMPDIR='/tmp/')
    assert not any('tmp' in word for word in found)


def test_podman_runs_as_the_user_of_the_agent() -> None:
    found = words(a_task(container={'image': 'debian', 'tool': 'podman'}))
    assert f'--user={os.getuid()}:{os.getgid()}' in found
    assert BASE_ENV['HOME'] not in ' '.join(found), 'variables travel by --env-host'
