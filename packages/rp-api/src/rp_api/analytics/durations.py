"""Named durations of pilots and tasks: the events at which each starts and stops.

The names and events are those of RADICAL-Pilot 1. The tables `PILOT_DURATIONS`, `TASK_DURATIONS_DEFAULT` and
`TASK_DURATIONS_APP` divide the time of devices: the durations under `consume` follow each other without overlap. The
`*_DEBUG` tables name the single steps, the `*_DEBUG_RU` tables group those by the side that takes them, and the
`*_DEBUG_SHORT` tables have the same steps in a short form: `{'STATE': name}`, `{'EVENT': name}` or `{'MSG': command}`.
All other tables have the form of radical.analytics, a dict from the column of an event to its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

EVENT, STATE, MSG = 1, 5, 6
"""Columns of an event in a profile of radical.analytics."""

Short = dict[str, str]
"""An event in the short form."""

Event = dict[int, str | None]
"""An event: the values that some of its columns must have; None is any value."""

Stretch = list[Event | list[Event]]
"""The events at which a duration starts and stops; a list of events stands for the first of them."""

_END = 'DONE CANCELED FAILED'


def expand(event: Short) -> Event:
    """Return an event of the short form as a dict from columns to values."""
    if 'STATE' in event:
        return {EVENT: 'state', STATE: event['STATE']}
    if 'MSG' in event:
        return {EVENT: 'cmd', MSG: event['MSG']}
    return {EVENT: event['EVENT'], STATE: None}


def _short(word: str) -> Short:
    """Return the event called `word`: a state in capitals, `cmd:<command>`, or the name of an event."""
    if word.isupper():
        return {'STATE': word}
    return {'MSG': word.removeprefix('cmd:')} if word.startswith('cmd:') else {'EVENT': word}


def _steps(text: str) -> dict[str, list[Short | list[Short]]]:
    """Return durations in the short form; each line of `text` has a name, a start and one or more ends."""
    found: dict[str, list[Short | list[Short]]] = {}
    for line in text.split('\n'):
        if words := line.split():
            name, start, *stops = words
            ends = [_short(word) for word in stops]
            found[name] = [_short(start), ends if len(ends) > 1 else ends[0]]
    return found


def _expand(table: Mapping[str, Iterable[Short | list[Short]]]) -> dict[str, Stretch]:
    return {name: [[expand(each) for each in event] if isinstance(event, list) else expand(event) for event in events]
            for name, events in table.items()}


def _table(text: str) -> dict[str, Stretch]:
    return _expand(_steps(text))


PILOT_DURATIONS: dict[str, dict[str, Stretch]] = {
    'provide': _table('total bootstrap_0_start bootstrap_0_stop'),
    'consume': _table("""
        boot    bootstrap_0_start bootstrap_0_ok
        setup_1 bootstrap_0_ok    PMGR_ACTIVE
        idle    PMGR_ACTIVE       cmd:cancel_pilot
        term    cmd:cancel_pilot  bootstrap_0_stop
        agent   sub_agent_start   sub_agent_stop"""),
    'agent': _table('total bootstrap_0_start bootstrap_0_stop'),
}
"""The uses of the devices of a pilot; on each device, tasks use parts of the time that is `idle`."""

_BEFORE = """
        exec_queue schedule_ok     AGENT_EXECUTING
        exec_prep  AGENT_EXECUTING task_run_start
        exec_rp    task_run_start  launch_start
        exec_sh    launch_start    exec_start"""
_AFTER = """
        term_sh    exec_stop       launch_stop
        term_rp    launch_stop     task_run_stop
        unschedule task_run_stop   unschedule_stop"""

TASK_DURATIONS_DEFAULT: dict[str, dict[str, Stretch]] = {'consume': _table(f"""{_BEFORE}
        exec_cmd   exec_start      exec_stop{_AFTER}""")}
"""The uses of the devices of a task, from its placement to its removal from them."""

TASK_DURATIONS_APP: dict[str, dict[str, Stretch]] = {'consume': _table(f"""{_BEFORE}
        init_app   exec_start      rank_start
        exec_cmd   rank_start      rank_stop
        term_app   rank_stop       exec_stop{_AFTER}""")}
"""The same, where the preparation of ranks and the work after them are told apart from the ranks themselves."""

PILOT_DURATIONS_DEBUG_SHORT = _steps(f"""
    p_pmgr_create            NEW                    PMGR_LAUNCHING_PENDING
    p_pmgr_launching_init    PMGR_LAUNCHING_PENDING PMGR_LAUNCHING
    p_pmgr_launching         PMGR_LAUNCHING         staging_in_start
    p_pmgr_stage_in          staging_in_start       staging_in_stop
    p_pmgr_submission_init   staging_in_stop        submission_start
    p_pmgr_submission        submission_start       submission_stop
    p_pmgr_scheduling_init   submission_stop        PMGR_ACTIVE_PENDING
    p_pmgr_scheduling        PMGR_ACTIVE_PENDING    bootstrap_0_start
    p_agent_ve_setup_init    bootstrap_0_start      ve_setup_start
    p_agent_ve_setup         ve_setup_start         ve_setup_stop
    p_agent_ve_activate_init ve_setup_stop          ve_activate_start
    p_agent_ve_activate      ve_activate_start      ve_activate_stop
    p_agent_install_init     ve_activate_stop       rp_install_start
    p_agent_install          rp_install_start       rp_install_stop
    p_agent_launching        rp_install_stop        PMGR_ACTIVE
    p_agent_terminate_init   PMGR_ACTIVE            cmd:cancel_pilot
    p_agent_terminate        cmd:cancel_pilot       bootstrap_0_stop
    p_agent_finalize         bootstrap_0_stop       {_END}
    p_agent_runtime          bootstrap_0_start      bootstrap_0_stop""")
PILOT_DURATIONS_DEBUG = _expand(PILOT_DURATIONS_DEBUG_SHORT)

TASK_DURATIONS_DEBUG_SHORT = _steps(f"""
    t_tmgr_create               NEW                          TMGR_SCHEDULING_PENDING
    t_tmgr_schedule_queue       TMGR_SCHEDULING_PENDING      TMGR_SCHEDULING
    t_tmgr_schedule             TMGR_SCHEDULING              TMGR_STAGING_INPUT_PENDING
    t_tmgr_stage_in_queue       TMGR_STAGING_INPUT_PENDING   TMGR_STAGING_INPUT
    t_tmgr_stage_in             TMGR_STAGING_INPUT           AGENT_STAGING_INPUT_PENDING
    t_agent_stage_in_queue      AGENT_STAGING_INPUT_PENDING  AGENT_STAGING_INPUT
    t_agent_stage_in            AGENT_STAGING_INPUT          AGENT_SCHEDULING_PENDING
    t_agent_schedule_queue      AGENT_SCHEDULING_PENDING     AGENT_SCHEDULING
    t_agent_schedule            AGENT_SCHEDULING             AGENT_EXECUTING_PENDING
    t_agent_execute_queue       AGENT_EXECUTING_PENDING      AGENT_EXECUTING
    t_agent_execute_prepare     AGENT_EXECUTING              task_mkdir
    t_agent_execute_mkdir       task_mkdir                   task_mkdir_done
    t_agent_execute_layer_start task_mkdir_done              task_run_start
    t_agent_execute_layer       task_run_start               task_run_ok
    t_agent_lm_start            task_run_start               launch_start
    t_agent_lm_submit           launch_start                 exec_start
    t_agent_lm_execute          exec_start                   exec_stop
    t_agent_lm_stop             exec_stop                    task_run_stop
    t_agent_stage_out_start     task_run_stop                AGENT_STAGING_OUTPUT_PENDING
    t_agent_stage_out_queue     AGENT_STAGING_OUTPUT_PENDING AGENT_STAGING_OUTPUT
    t_agent_stage_out           AGENT_STAGING_OUTPUT         TMGR_STAGING_OUTPUT_PENDING
    t_agent_push_to_tmgr        TMGR_STAGING_OUTPUT_PENDING  TMGR_STAGING_OUTPUT
    t_tmgr_destroy              TMGR_STAGING_OUTPUT          {_END}
    t_agent_unschedule          unschedule_start             unschedule_stop""")
TASK_DURATIONS_DEBUG = _expand(TASK_DURATIONS_DEBUG_SHORT)

_PILOT_CLIENT = [name for name in PILOT_DURATIONS_DEBUG if name.startswith('p_pmgr')] + ['p_agent_finalize']
_TASK_CLIENT = [name for name in TASK_DURATIONS_DEBUG if name.startswith('t_tmgr')] + ['t_agent_unschedule']


def _of(table: Mapping[str, Stretch], names: Iterable[str]) -> dict[str, Stretch]:
    return {name: table[name] for name in table if name in set(names)}


PILOT_DURATIONS_DEBUG_RU = {
    'provide': _of(PILOT_DURATIONS_DEBUG, ['p_agent_runtime']),
    'client': _of(PILOT_DURATIONS_DEBUG, _PILOT_CLIENT),
    'consume': _of(PILOT_DURATIONS_DEBUG, PILOT_DURATIONS_DEBUG.keys() - {*_PILOT_CLIENT, 'p_agent_runtime'}),
    'agent': _of(PILOT_DURATIONS_DEBUG, ['p_agent_runtime']),
}
TASK_DURATIONS_DEBUG_RU = {
    'client': _of(TASK_DURATIONS_DEBUG, _TASK_CLIENT),
    'consume': _of(TASK_DURATIONS_DEBUG, TASK_DURATIONS_DEBUG.keys() - set(_TASK_CLIENT)),
}
