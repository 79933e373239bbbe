"""Events that are recorded on the pilot: by the agent, its components, and the scripts that run a task."""

from __future__ import annotations

from functools import partial
from typing import Any

from rp_profiling.catalogue.model import IN_USE, OWN, Event, PartialOrder, Recorder, Star, alt, opt, seq
from rp_profiling.levels import DEFAULT, FULL, STATES

_DVM = 'dvm_id=%d'
_AS_DVM = 'an instance of Flux is recorded as a DVM'
# the executor records the events of tasks without scripts, and the stager copies the profile of a removed sandbox
_IN_TASK = ('task.*.prof', 'agent_executing.*.prof', 'agent_staging_output.*.prof')
_IN_STAGER = ('agent_staging_output.*.prof',)

_agent = Recorder('agent_0', 'pilot', ('agent_0.prof',))
# the executor starts DVMs
_dvm = partial(_agent, msg=_DVM, condition='CFG-DVM', profiles=('agent_0.prof', 'agent_executing.*.prof'))
_input = Recorder('AgentStagingInputComponent', 'task', ('agent_staging_input.*.prof',), DEFAULT)
_scheduling = Recorder('AgentSchedulingComponent', 'task', ('agent_scheduling.*.prof',), DEFAULT)
# ranks of RAPTOR workers record tasks in <uid of the worker>.<rank>.prof
_RAPTOR = ('raptor.*.prof',)
_executing = Recorder('AgentExecutingComponent', 'task', ('agent_executing.*.prof',))
_running = Recorder('AgentExecutingComponent', 'task', ('agent_executing.*.prof', *_RAPTOR))
_script = Recorder('AgentExecutingComponent', 'task', _IN_TASK, DEFAULT)
_ranked = Recorder('AgentExecutingComponent', 'task', (*_IN_TASK, *_RAPTOR), DEFAULT)
_output = Recorder('AgentStagingOutputComponent', 'task', _IN_STAGER, DEFAULT)


def _reading(name: str, what: str, **kind: Any) -> tuple[Event, Event]:
    return (_output(f'staging_{name}_start', f'{what} is being read', **kind),
            _output(f'staging_{name}_stop', f'{what} has been read', **kind))


# `get` has two forms: one row for the bulk, and one for each task in it.
_AGENT = (
    _agent('hostname', 'names the host that the agent runs on'),
    _agent('resources', 'the nodes, cores and GPUs that tasks may use', origin=OWN,
           msg='nodes=%d cores=%d gpus=%d cores_per_node=%d gpus_per_node=%d'),
    _agent('cmd', 'a command has come from the pilot manager', msg='command', condition='API'),
    _agent('partition_start', 'the agent of a partition is started', condition='PILOT', origin=OWN),
    _agent('partition_ready', 'a partition takes tasks', condition='PILOT', origin=OWN),
    _agent('partition_stop', 'a partition has ended', msg='state', condition='PILOT', origin=OWN),
    _agent('sub_agent_stop', 'a sub-agent has ended', msg='its name', optional=True, origin=IN_USE),
    _agent('signal', 'the job got a signal that does not end it', msg='its name', optional=True, origin=OWN),
    _agent('node_lost', 'a node of the pilot cannot be used any more', msg='its name', optional=True, origin=OWN),
    _scheduling('task_retry', 'an attempt of the task has failed, and another one will follow', msg='number and kind',
                optional=True, origin=OWN),
    _agent('flux_start', 'an instance of Flux is being started', condition='CFG', origin=IN_USE, unrecorded=_AS_DVM),
    _agent('flux_start_ok', 'an instance of Flux can run tasks', condition='CFG', origin=IN_USE, unrecorded=_AS_DVM),
    _agent('get', 'a bulk of tasks has come from the task manager', msg='bulk size: %d', detail=DEFAULT),
    _agent('get', 'a task has come from the task manager', uid='task', detail=DEFAULT),
    _agent('dependency_wait', 'the task waits until the tasks have ended that it depends on', uid='task',
           condition='Task', origin=OWN, detail=DEFAULT),
    _agent('dependency_ok', 'the tasks have ended that the task depends on, as it requests', uid='task',
           condition='Task', origin=OWN, detail=DEFAULT),
    _dvm('dvm_start', 'the launch method starts a DVM'),
    _dvm('dvm_uri', 'the address of the DVM is known'),
    _dvm('dvm_ready', 'the DVM can run tasks'),
    _dvm('dvm_stop', 'the DVM has ended'),
    _dvm('dvm_fail', 'the DVM could not be ended'),
)

_STAGING_IN = _input.directives('staging_in', 'an input directive', 'start', 'skip', 'fail', 'stop',
                                condition='Task-DS')

_SCHEDULING = (
    _scheduling('schedule_try', 'the scheduler looks for resources for the task'),
    _scheduling('schedule_fail', 'no resources are free for the task at present', condition='RUNTIME'),
    _scheduling('schedule_ok', 'the task has its resources; the message is new in RADICAL-Pilot 2',
                msg='<node>:<cores>:<GPUs> of each rank', detail=STATES),
    _scheduling('unschedule_start', "the task's resources are being freed"),
    _scheduling('unschedule_stop', "the task's resources are free", detail=STATES),
)

_EXECUTING = (
    _running('task_start', 'work on the task begins', detail=DEFAULT),
    _executing('task_mkdir', 'the task sandbox is to be made', detail=DEFAULT),
    _executing('task_mkdir_done', 'the task sandbox has been made', detail=DEFAULT),
    _running('task_run_start', 'the task is handed to the layer that runs it'),
    _running('task_run_ok', 'the layer that runs the task has taken it', detail=DEFAULT),
    _script('launch_start', 'launch script: starts'),
    _script('launch_pre', 'launch script: commands before the launch'),
    _script('launch_submit', 'launch script: the launch method is called'),
    _ranked('exec_start', 'exec script: starts, on each rank'),
    _script('exec_pre', 'exec script: commands before the executable'),
    _ranked('rank_start', 'exec script: the executable starts', detail=STATES),
    _ranked('app_start', 'the application starts, by its own account', condition='APP', detail=STATES),
    _ranked('app_*', "the application's own events", condition='APP', detail=STATES),
    _ranked('app_stop', 'the application ends, by its own account', condition='APP', detail=STATES),
    _ranked('rank_stop', 'exec script: the executable has ended', detail=STATES),
    _script('exec_post', 'exec script: commands after the executable'),
    _ranked('exec_stop', 'exec script: ends'),
    _script('launch_collect', 'launch script: the launch method has returned'),
    _script('launch_post', 'launch script: commands after the launch'),
    _script('launch_stop', 'launch script: ends'),
    _running('task_run_stop', 'the layer that ran the task has returned it'),
    _executing('task_run_cancel_start', 'the task is being killed', condition='API'),
    _executing('task_run_cancel_stop', 'the task has been killed', condition='API'),
    _executing('task_timeout', 'the task has exceeded its timeout and is ended', condition='Task', origin=IN_USE),
)

_STAGING_OUT = (
    *_reading('stdout', 'standard output of the task'),
    *_reading('stderr', 'standard error of the task'),
    *_reading('uprof', 'the profile of a task whose sandbox is to be removed', condition='Task'),
    *_reading('ofile', 'the list of files made by the task', optional=True, origin=IN_USE, detail=FULL),
    *_output.directives('staging_out', 'an output directive', 'start', 'skip', 'fail', 'stop', condition='Task-DS'),
)

EVENTS = (*_AGENT, *_STAGING_IN, *_SCHEDULING, *_EXECUTING, *_STAGING_OUT)

_APP = (opt('app_start'), Star('app_*'), opt('app_stop'))
RAPTOR_WORKER = 'raptor_worker'
"""The component that ranks of RAPTOR workers are in their profiles, before the uid of the worker and their number."""

_CALL = ('task_start', 'task_run_start', 'task_run_ok', 'task_run_stop')

_EACH_RANK = (
    *('exec_start', 'exec_pre', 'rank_start', 'app_start', 'app_*', 'app_stop'),
    *('rank_stop', 'exec_post', 'exec_stop'),
)
_RANKS = (
    'A task with several ranks records the events from exec_start to exec_stop once for each rank, '
    'interleaved: the check uses the first of each name.'
)

ORDERS = (
    PartialOrder('agent_0', 'instance', seq('hostname', opt('resources'), Star(alt('cmd', 'get')))),
    PartialOrder(
        'agent_0',
        'instance',
        seq('dvm_start', opt('dvm_uri'), opt('dvm_ready'), alt('dvm_stop', 'dvm_fail')),
        note='An instance is one start of a DVM, named in the message; it may end before it is ready.',
    ),
    PartialOrder('agent_0', 'task', seq('dependency_wait', 'dependency_ok')),
    PartialOrder('agent_0', 'pilot', seq('partition_start', opt('partition_ready'), 'partition_stop')),
    PartialOrder('AgentStagingInputComponent', 'file',
                 alt('staging_in_skip', seq('staging_in_start', alt('staging_in_fail', 'staging_in_stop')))),
    PartialOrder('AgentSchedulingComponent', 'task', seq(
        'schedule_try', Star('schedule_fail'), 'schedule_ok', 'unschedule_start', 'unschedule_stop')),
    PartialOrder(
        'AgentExecutingComponent',
        'task',
        seq(
            *('task_start', 'task_run_start', 'task_run_ok'),
            *('launch_start', 'launch_pre', 'launch_submit'),
            *('exec_start', 'exec_pre', 'rank_start', *_APP, 'rank_stop', 'exec_post', 'exec_stop'),
            *('launch_collect', 'launch_post', 'launch_stop'),
            'task_run_stop',
        ),
        note=_RANKS,
        each_rank=_EACH_RANK,
    ),
    PartialOrder(
        'AgentExecutingComponent',
        'raptor task',
        seq(
            *('task_start', 'task_run_start', 'task_run_ok'),
            *('exec_start', 'rank_start', *_APP, 'rank_stop', 'exec_stop'),
            'task_run_stop',
        ),
        note='The ranks of workers record them: RAPTOR has no launcher, no commands around the call and no sandbox for '
             'each task. Each rank of a task records all of them, interleaved: the check uses the first of each name. '
             'The repetition of an interrupted call counts in the same way.',
        each_rank=(*_CALL, *_EACH_RANK),
    ),
    PartialOrder('AgentExecutingComponent', 'task', seq('task_run_cancel_start', 'task_run_cancel_stop')),
    PartialOrder('AgentStagingOutputComponent', 'task', seq(
        'staging_stdout_start', 'staging_stdout_stop', 'staging_stderr_start', 'staging_stderr_stop',
        opt('staging_uprof_start', 'staging_uprof_stop'))),
    PartialOrder('AgentStagingOutputComponent', 'file',
                 alt('staging_out_skip', seq('staging_out_start', alt('staging_out_fail', 'staging_out_stop')))),
)
