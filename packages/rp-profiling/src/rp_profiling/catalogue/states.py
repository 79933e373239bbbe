"""The states of pilots and tasks: the component that acts on an entity, and the profile that records the entry.

The entry is an event `advance` with the entity as uid and the name of the state in the field state.
"""

from __future__ import annotations

from rp_profiling.catalogue.model import State

_CLIENT = ('client',)
_AGENT = ('agent',)
_PMGR = 'pmgr.*.prof'
_LAUNCHING = 'pmgr_launching.*.prof'
_TMGR = 'tmgr.*.prof'
_TMGR_SCHEDULING = 'tmgr_scheduling.*.prof'
_TMGR_INPUT = 'tmgr_staging_input.*.prof'
_TMGR_OUTPUT = 'tmgr_staging_output.*.prof'
_AGENT_INPUT = 'agent_staging_input.*.prof'
_AGENT_SCHEDULING = 'agent_scheduling.*.prof'
_AGENT_EXECUTING = 'agent_executing.*.prof'
_AGENT_OUTPUT = 'agent_staging_output.*.prof'


def _pilot(name: str, module: str, component: str, action: str, *profiles: str) -> State:
    return State('pilot', name, module, component, action, _CLIENT, profiles)


def _on_client(name: str, component: str, action: str, *profiles: str) -> State:
    return State('task', name, 'Task Manager', component, action, _CLIENT, profiles)


def _on_agent(name: str, component: str, action: str, *profiles: str) -> State:
    return State('task', name, 'Agent', component, action, _AGENT, profiles)


PILOT_STATES = (
    _pilot('NEW', 'Pilot Manager', '', 'the pilot is being made', _PMGR),
    _pilot('PMGR_LAUNCHING_PENDING', 'Pilot Manager', 'Launcher queue', 'waits to be submitted', _PMGR),
    _pilot('PMGR_LAUNCHING', 'Pilot Manager', 'Pilot Launcher', 'goes to the batch system', _LAUNCHING),
    _pilot('PMGR_ACTIVE_PENDING', 'LRM', '', 'is queued by the batch system, or boots', _LAUNCHING),
    _pilot('PMGR_ACTIVE', 'LRM', '', 'holds its nodes and runs tasks', _PMGR),
    _pilot('DONE', 'Pilot Manager', '', 'ended as planned; final', _PMGR),
    _pilot('CANCELED', 'Pilot Manager', '', 'was cancelled; final', _PMGR),
    _pilot('FAILED', 'Pilot Manager', '', 'failed; final', _PMGR),
)

TASK_STATES = (
    _on_client('NEW', '', 'the task is being made', _TMGR),
    _on_client('TMGR_SCHEDULING_PENDING', 'Scheduler queue', 'waits to be given to a pilot', _TMGR),
    _on_client('TMGR_SCHEDULING', 'Scheduler', 'is being given to a pilot', _TMGR_SCHEDULING),
    _on_client('TMGR_STAGING_INPUT_PENDING', 'Stager In queue', 'waits for its input', _TMGR_SCHEDULING),
    _on_client('TMGR_STAGING_INPUT', 'Stager In', 'its input goes to the platform', _TMGR_INPUT),
    State('task', 'AGENT_STAGING_INPUT_PENDING', 'Agent', 'Stager In queue', 'waits for the agent',
          ('client', 'agent'), (_TMGR_INPUT,)),
    _on_agent('AGENT_STAGING_INPUT', 'Stager In', 'its input goes into its sandbox', _AGENT_INPUT),
    _on_agent('AGENT_SCHEDULING_PENDING', 'Scheduler queue', 'waits for cores and GPUs', _AGENT_INPUT),
    _on_agent('AGENT_SCHEDULING', 'Scheduler', 'is being placed on cores and GPUs', _AGENT_SCHEDULING),
    _on_agent('AGENT_EXECUTING_PENDING', 'Executor queue', 'has its resources, waits to run', _AGENT_SCHEDULING),
    _on_agent('AGENT_EXECUTING', 'Executor', 'runs on its cores and GPUs', _AGENT_EXECUTING),
    _on_agent('AGENT_STAGING_OUTPUT_PENDING', 'Stager Out queue', 'has run, output waits', _AGENT_EXECUTING),
    _on_agent('AGENT_STAGING_OUTPUT', 'Stager Out', 'its output moves on the platform', _AGENT_OUTPUT),
    State('task', 'TMGR_STAGING_OUTPUT_PENDING', 'Task Manager', 'Stager Out queue', 'waits for the task manager',
          _AGENT, (_AGENT_OUTPUT,)),
    _on_client('TMGR_STAGING_OUTPUT', 'Stager Out', 'its output goes to the targets of the client', _TMGR_OUTPUT),
    _on_client('DONE', '', 'ended well; final', _TMGR),
    _on_client('CANCELED', '', 'was cancelled; final', _TMGR),
    _on_client('FAILED', '', 'failed; final', _TMGR),
)

STATES = (*PILOT_STATES, *TASK_STATES)
