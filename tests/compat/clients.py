"""What `nox -s compat` runs of each client of RADICAL-Pilot, and why it fails where it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / 'programs'
PYTEST = ('-m', 'pytest', '-q', '-p', 'no:cacheprovider', '-o', 'addopts=')


@dataclass(frozen=True)
class Check:
    """A program of a client, which passes if it exits with 0 and prints what it `says`.

    Attributes:
        client: The client.
        name: What is run: the path in its source distribution, or of our own program in `programs`.
        command: Arguments of the interpreter.
        source: How the directory with its source begins; empty for a program of ours that uses the client.
        folder: Where in the source it runs.
        added: Directories in `programs` whose files go to that folder: what the source distribution lacks.
        says: Text that the output has to contain.
        reason: Why it does not pass; empty for what has to.
        short: Whether CI runs it.
        seconds: The most that it may take.
        environ: Environment variables for it.
    """

    client: str
    name: str
    command: tuple[str, ...]
    source: str = ''
    folder: str = '.'
    added: tuple[str, ...] = ()
    says: str = ''
    reason: str = ''
    short: bool = False
    seconds: float = 300
    environ: Mapping[str, str] = field(default_factory=dict)


def _example(client: str, source: str, path: str, *arguments: str, **settings: Any) -> Check:
    """A program in the source distribution, which runs in its own directory."""
    folder, _, name = path.rpartition('/')
    return Check(client, path, (f'./{name}', *arguments), source, folder, **settings)


def _pilot(name: str, *arguments: str, **settings: Any) -> Check:
    return _example('RADICAL-Pilot', 'radical_pilot', f'examples/{name}', *arguments, **settings)


def _entk(name: str, *arguments: str, **settings: Any) -> Check:
    return _example('EnTK', 'radical_entk', f'examples/{name}', *arguments, **settings)


def _parsl(name: str, *arguments: str, **settings: Any) -> Check:
    tests = f'parsl/tests/{name.partition(":")[0]}'
    return Check('Parsl', f'parsl/tests/{name}', (*PYTEST, tests, *arguments), 'parsl', **settings)


def _psij(name: str, *arguments: str, **settings: Any) -> Check:
    command = (*PYTEST, '--rootdir=.', '-p', 'psij_fixtures', name.partition(':')[0], *arguments)
    return Check('PSI/J', f'tests/{name}', command, 'psij', 'tests', ('psij',), **settings)


def _analytics(name: str, **settings: Any) -> Check:
    return Check('radical.analytics', f'tests/{name}', (*PYTEST, f'tests/{name}'), 'radical_analytics', **settings)


def _own(client: str, name: str, says: str, **settings: Any) -> Check:
    return Check(client, name, (str(PROGRAMS / name),), says=says, **settings)


NO_PLATFORM = 'names no platform: users put one in'
OUTDATED = 'uses names that RADICAL-Pilot 1.103 does not have either'
PILOT = [
    _pilot('00_getting_started.py', short=True),
    _pilot('01_task_details.py'),
    _pilot('02_failing_tasks.py'),
    _pilot('03_multiple_pilots.py'),
    _pilot('04_scheduler_selection.py'),
    _pilot('05_task_input_data.py'),
    _pilot('06_task_output_data.py'),
    _pilot('07_shared_task_data.py'),
    _pilot('08_task_environment.py'),
    _pilot('09_mpi_tasks.py'),
    _pilot('10_pre_and_post_exec.py', short=True),
    _pilot('11_task_input_data_tar.py'),
    _pilot('11_task_input_folder.py'),
    _pilot('12_task_env.py'),
    _pilot('agent_services.py'),
    _pilot('error_handling.py'),
    _pilot('data_staging/io_staging_all.py', short=True),
    _pilot('data_staging/io_staging_dict.py'),
    _pilot('data_staging/io_staging_pipeline.py', short=True),
    _pilot('data_staging/io_staging_shared.py'),
    _pilot('data_staging/io_staging_simple.py'),
    _pilot('docs/chained_tasks.py', reason=NO_PLATFORM),
    _pilot('docs/coupled_tasks.py', reason=NO_PLATFORM),
    _pilot('docs/mpi_tasks.py', reason=OUTDATED),
    _pilot('docs/simple_bot.py', reason=OUTDATED),
    _pilot('docs/simple_bot_mult_res.py', reason=OUTDATED),
    _pilot('misc/backfilling.py'),
    _pilot('misc/backfilling_recovery.py'),
    _pilot('misc/bragg.py', reason='runs until it is interrupted', seconds=60),
    _pilot('misc/colocated.py'),
    _pilot('misc/ddmd.py', reason='runs until it is interrupted', seconds=60),
    _pilot('misc/env.py'),
    _pilot('misc/hello_synapse.py', reason='needs radical.synapse'),
    _pilot('misc/ordered_pipelines.py'),
    _pilot('misc/pilot_resources.py'),
    _pilot('misc/raptor.py'),
    _pilot('misc/raptor_simple.py'),
    _pilot('misc/restart_0.py'),
    _pilot('misc/rp_app_comm.py', reason='its tasks connect without keys, as radical.utils does', seconds=60),
    _pilot('misc/service_tasks.py', seconds=60,
           reason='has a task that waits for a second service, which it starts only on a second node'),
    _pilot('misc/task_cancelation.py'),
    _pilot('misc/task_priorities.py'),
    _pilot('misc/wl_shape_02.py', reason='needs input of Gromacs that is not in the source distribution'),
]

UNDEFINED = 'uses a name, CUR_TASKS, that it does not define'
ENTK = [
    _entk('user_guide/get_started.py', short=True),
    _entk('user_guide/add_data.py'),
    _entk('user_guide/add_pipelines.py'),
    _entk('user_guide/add_shared_data.py',
          reason='gives `>` as an argument, which is quoted, as by RADICAL-Pilot 1.103'),
    _entk('user_guide/add_stages.py'),
    _entk('user_guide/add_tasks.py'),
    _entk('user_guide/profiling.py', reason='imports a name that EnTK does not have any more'),
    _entk('simple/bag_of_pipelines.py', '2', '2', '2', 'radical.pilot'),
    _entk('simple/eop.py'),
    _entk('simple/poe.py'),
    _entk('simple/sow.py'),
    _entk('tutorial/radical_entk_1.py'),
    _entk('tutorial/radical_entk_2.py'),
    _entk('advanced/adapt_ta.py', reason=UNDEFINED),
    _entk('advanced/adapt_tc.py', reason='its callback uses a variable that it has not set, and EnTK waits for ever'),
    _entk('advanced/adapt_to.py', reason=UNDEFINED),
    _entk('misc/async_repex.py', seconds=1200,
          reason='writes to a file that it has closed when EnTK ends, and EnTK waits for ever'),
    _entk('misc/lfs_tagging_dd.py', reason='uses Task.tag, which EnTK does not have any more'),
    _entk('misc/suspend_pipelines.py'),
]

ON_A_PILOT = ('--config', 'parsl/tests/configs/local_radical.py')
STREAMS = 'test_bad_std or test_stdout_truncate'
PARSL = [
    _own('Parsl', 'parsl_executor.py', 'all results right', short=True),
    _parsl('test_radical', '--config', 'local', environ={'RADICAL_CI': '1'}),
    _parsl('test_python_apps', *ON_A_PILOT),
    _parsl('test_error_handling', *ON_A_PILOT),
    _parsl('test_regression', *ON_A_PILOT),
    _parsl('test_bash_apps', *ON_A_PILOT, '-k', f'not ({STREAMS})'),
    _parsl('test_bash_apps: output', *ON_A_PILOT, '-k', STREAMS,
           reason='its executor neither checks the files for output nor takes pairs of name and mode'),
]

NATIVE = 'test_attach or test_failing_job or test_stdin_redirect or test_list'
PSIJ = [
    _psij('test_callbacks.py', short=True),
    _psij('test_executor.py', '-k', f'not ({NATIVE})'),
    _psij('test_executor.py: native', '-k', NATIVE,
          reason='its executor has no native ids, no exit codes and no standard input'),
]

OTHERS = [
    _own('asyncflow', 'asyncflow.py', 'all workflows right', short=True),
    Check('rhapsody', 'tests/unit/test_backend_execution_radical_pilot.py',
          (*PYTEST, 'tests/unit/test_backend_execution_radical_pilot.py'), 'rhapsody_py', short=True),
    _own('rhapsody', 'rhapsody_raptor.py', 'all results right', short=True),
    _analytics('test_duration_method.py'),
    _analytics('test_session.py'),
    _analytics('test_entity.py', reason='its data are not in the source distribution'),
    _own('radical.analytics', 'analytics_session.py', 'all core-seconds accounted for', short=True),
    _own('QCFractal', 'qcfractal_manager.py', 'task complete'),
]

CHECKS = [*PILOT, *ENTK, *PARSL, *PSIJ, *OTHERS]
