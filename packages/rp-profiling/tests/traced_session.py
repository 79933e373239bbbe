"""Builds the profiles of a session that is as it should be, so that tests can take it apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rp_profiling.catalogue import LEFT_OUT

HEADER = '#time,event,comp,thread,uid,state,msg'
SESSION = 'rp.session.demo'
CORES = 4

# what is recorded of one task: milliseconds after it was submitted, profile, event, state
LIFE = (
    (0, 'tmgr.0000', 'get', 'NEW'),
    (1, 'tmgr.0000', 'advance', 'TMGR_SCHEDULING_PENDING'),
    (2, 'tmgr_scheduling.0000', 'advance', 'TMGR_SCHEDULING'),
    (3, 'tmgr_scheduling.0000', 'advance', 'TMGR_STAGING_INPUT_PENDING'),
    (4, 'tmgr_staging_input.0000', 'advance', 'TMGR_STAGING_INPUT'),
    (5, 'tmgr_staging_input.0000', 'advance', 'AGENT_STAGING_INPUT_PENDING'),
    (10, 'agent_0', 'get', 'AGENT_STAGING_INPUT_PENDING'),
    (11, 'agent_staging_input.0000', 'advance', 'AGENT_STAGING_INPUT'),
    (12, 'agent_staging_input.0000', 'advance', 'AGENT_SCHEDULING_PENDING'),
    (13, 'agent_scheduling.0000', 'advance', 'AGENT_SCHEDULING'),
    (14, 'agent_scheduling.0000', 'schedule_try', ''),
    (20, 'agent_scheduling.0000', 'schedule_ok', ''),
    (21, 'agent_scheduling.0000', 'advance', 'AGENT_EXECUTING_PENDING'),
    (22, 'agent_executing.0000', 'advance', 'AGENT_EXECUTING'),
    (23, 'agent_executing.0000', 'task_start', ''),
    (23, 'agent_executing.0000', 'task_mkdir', ''),
    (24, 'agent_executing.0000', 'task_mkdir_done', ''),
    (24, 'agent_executing.0000', 'task_run_start', ''),
    (25, 'agent_executing.0000', 'task_run_ok', ''),
    *((25, 'agent_executing.0000', f'launch_{what}', '') for what in ('start', 'pre', 'submit')),
    *((26, 'agent_executing.0000', event, '') for event in ('exec_start', 'exec_pre')),
    (30, 'agent_executing.0000', 'rank_start', ''),
    (80, 'agent_executing.0000', 'rank_stop', ''),
    *((81, 'agent_executing.0000', event, '') for event in ('exec_post', 'exec_stop')),
    *((82, 'agent_executing.0000', f'launch_{what}', '') for what in ('collect', 'post', 'stop')),
    (83, 'agent_executing.0000', 'task_run_stop', ''),
    (84, 'agent_executing.0000', 'advance', 'AGENT_STAGING_OUTPUT_PENDING'),
    (85, 'agent_scheduling.0000', 'unschedule_start', ''),
    (86, 'agent_scheduling.0000', 'unschedule_stop', ''),
    (87, 'agent_staging_output.0000', 'advance', 'AGENT_STAGING_OUTPUT'),
    *((88, 'agent_staging_output.0000', f'staging_{what}', '') for what in
      ('stdout_start', 'stdout_stop', 'stderr_start', 'stderr_stop')),
    (89, 'agent_staging_output.0000', 'advance', 'TMGR_STAGING_OUTPUT_PENDING'),
    (92, 'tmgr_staging_output.0000', 'advance', 'TMGR_STAGING_OUTPUT'),
    (93, 'tmgr.0000', 'advance', 'DONE'),
)
CLIENT = (SESSION, 'pmgr.0000', 'pmgr_launching.0000', 'tmgr.0000', 'tmgr_scheduling.0000', 'tmgr_staging_input.0000',
          'tmgr_staging_output.0000')
AGENT = ('agent_0', 'agent_staging_input.0000', 'agent_scheduling.0000', 'agent_executing.0000',
         'agent_staging_output.0000')
START = 1_700_000_000_000
"""Milliseconds since the epoch."""


class Event(NamedTuple):
    """A row of a profile."""

    file: str
    time: int
    event: str
    uid: str = ''
    state: str = ''
    msg: str = ''


def events_of(tasks: int = 8) -> list[Event]:
    """All events of a session with so many tasks, of which one starts every 20 ms on one of the cores in turn.

    The pilot is there 100 ms after the start, active after 200 ms, and told to end after 5000 ms.
    """
    found = [Event(name, 0 if name in CLIENT else 100, 'sync_abs', msg=f'host:127.0.0.1:{START}:{START}:sys')
             for name in (*CLIENT, *AGENT)]
    found += [Event(name, 1 if name in CLIENT else 101, 'component_init', name) for name in (*CLIENT[2:], *AGENT[1:])
              if name != 'tmgr.0000']
    found += _frame()
    for number in range(tasks):
        found += _life(number)
    end = 5000
    found += [Event(name, end + 20, 'component_final', name) for name in (*CLIENT[2:], *AGENT[1:])
              if name != 'tmgr.0000']
    return found + [Event(name, end + (30 if name in CLIENT else 21), 'END') for name in (*CLIENT, *AGENT)]


def _frame() -> list[Event]:
    """What is recorded of session and pilot."""
    launched = (('submission_start', ''), ('submission_stop', ''))
    return [
        Event(SESSION, 2, 'session_start', SESSION), Event(SESSION, 3, 'session_ok', SESSION),
        Event('pmgr.0000', 5, 'advance', 'pilot.0000', 'PMGR_LAUNCHING_PENDING'),
        Event('pmgr_launching.0000', 6, 'advance', 'pilot.0000', 'PMGR_LAUNCHING'),
        *(Event('pmgr_launching.0000', 7, event, 'pilot.0000', msg=msg) for event, msg in launched),
        Event('pmgr_launching.0000', 8, 'advance', 'pilot.0000', 'PMGR_ACTIVE_PENDING'),
        Event('agent_0', 101, 'hostname', 'pilot.0000', msg='host'),
        Event('agent_0', 102, 'resources', 'pilot.0000',
              msg=f'nodes=1 cores={CORES} gpus=0 cores_per_node={CORES} gpus_per_node=0'),
        Event('pmgr.0000', 200, 'advance', 'pilot.0000', 'PMGR_ACTIVE'),
        Event('agent_0', 5000, 'cmd', 'pilot.0000', msg='cancel_pilot : 0'),
        Event('pmgr.0000', 5005, 'advance', 'pilot.0000', 'CANCELED'),
        Event(SESSION, 4999, 'session_close', SESSION), Event(SESSION, 5025, 'session_stop', SESSION),
    ]


def _life(number: int) -> list[Event]:
    begin = 300 + 100 * (number // CORES) + 5 * (number % CORES)
    return [Event(file, begin + after, event, uid_of(number), state,
                  f'0:{number % CORES}:' if event == 'schedule_ok' else '') for after, file, event, state in LIFE]


def reduced(events: list[Event], *files: str) -> list[Event]:
    """The events that profiles of less detail have: all profiles, or only `files`."""
    said = [event._replace(event='trace_detail', msg='states') for event in events
            if event.event == 'sync_abs' and (not files or event.file in files)]
    kept = [event for event in events if event.event not in LEFT_OUT or (files and event.file not in files)]
    return sorted(kept + said, key=lambda event: (event.time, event.event != 'sync_abs', event.event != 'trace_detail'))


def uid_of(number: int) -> str:
    return f'task.{number:06}'


def write_session(directory: Path, events: list[Event]) -> Path:
    """Write the profiles of a session below `directory`; the directory of the session."""
    session = directory / SESSION
    files: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda event: event.time):
        files.setdefault(event.file, []).append(event)
    for name, rows in files.items():
        path = session / (f'{name}.prof' if name in CLIENT else f'pilot.0000/{name}.prof')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('\n'.join([HEADER, *map(_line, rows)]) + '\n')
    return session


def _line(event: Event) -> str:
    seconds, rest = divmod(START + event.time, 1000)
    comp = '' if event.file.startswith('task.') else event.file
    return f'{seconds}.{rest:03}0000,{event.event},{comp},MainThread,{event.uid},{event.state},{event.msg}'


def where(wanted: Callable[[Event], bool], events: list[Event]) -> int:
    """The index of the first event of that kind."""
    return next(index for index, event in enumerate(events) if wanted(event))
