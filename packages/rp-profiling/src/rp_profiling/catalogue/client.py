"""Events that are recorded on the side of the application: session, managers, and their components."""

from __future__ import annotations

from functools import partial

from rp_profiling.catalogue.model import IN_USE, OWN, PartialOrder, Recorder, alt, opt, seq, star
from rp_profiling.levels import FULL

_session = Recorder('Session', 'session', ('rp.session.*.prof',))
_pmgr = Recorder('PilotManager', 'pilot manager', ('pmgr.*.prof',))
_launching = Recorder('PMGRLaunchingComponent', 'pilot', ('pmgr_launching.*.prof',))
_staging = partial(_launching, detail=FULL)
_pilot = Recorder('Pilot', 'pilot', ('rp.session.*.prof',), FULL)
_tmgr = Recorder('TaskManager', 'task', ('tmgr.*.prof',))
_input = Recorder('TMGRStagingInputComponent', 'task', ('tmgr_staging_input.*.prof',), FULL)
_output = Recorder('TMGRStagingOutputComponent', 'task', ('tmgr_staging_output.*.prof',), FULL)
_update = Recorder('UpdateWorker', 'task', detail=FULL)

# the session's own order has the two config_parser events, which the model only names
_SESSION = (
    _session('session_start', 'a new session is being made'),
    _session('config_parser_start', 'configuration files are about to be read', optional=True),
    _session('config_parser_stop', 'configuration files have been read', optional=True),
    _session('session_ok', 'the session can be used', origin=IN_USE),
    _session('session_close', 'the session has been asked to close'),
    _session('session_stop', 'the session is closed'),
    _session('session_fetch_start', 'logs, profiles and descriptions of the session are being collected',
             condition='API'),
    _session('session_fetch_stop', 'logs, profiles and descriptions of the session have been collected',
             condition='API'),
)

_PILOTS = (
    _pmgr('setup_done', 'the pilot manager is ready'),
    _staging('staging_in_start', 'files for the pilot sandbox are being transferred', optional=True),
    _staging('staging_in_fail', 'files for the pilot sandbox could not be transferred', optional=True, origin=OWN),
    _staging('staging_in_stop', 'files for the pilot sandbox have been transferred', optional=True),
    _launching('submission_start', 'the pilot job is being submitted to the batch system; the message is new in '
               'RADICAL-Pilot 2', msg='path of the pilot sandbox'),
    _launching('submission_stop', 'the batch system has the pilot job'),
    *_pilot.directives('staging_in', 'a staging directive of a pilot', 'start', 'fail', 'stop', condition='PILOT-DS'),
    *_pilot.directives('staging_out', 'an output directive of a pilot', 'start', 'fail', 'stop', condition='PILOT-DS',
                       origin=IN_USE),
)

# `get` has two forms: one row for the bulk, and one for each task in it.
_TASKS = (
    _tmgr('setup_done', 'the task manager is ready', uid='task manager'),
    _tmgr('get', 'the application hands over a bulk of tasks', uid='task manager', msg='bulk size: %d', detail=FULL),
    _tmgr('get', 'the application hands over a task', detail=FULL),
    _input('create_sandbox_start', 'the task sandbox is being made', condition='Task-DS'),
    _input('create_sandbox_stop', 'the task sandbox has been made', condition='Task-DS'),
    *_input.directives('staging_in', 'an input directive', 'start', 'stop', condition='Task-DS'),
    *_input.directives('staging_in', 'an input directive', 'fail', condition='Task-DS', origin=OWN),
    *_input.directives('staging_in_tar', 'the transfer of several files as one archive', 'start', 'stop',
                       condition='Task-DS'),
    *_output.directives('staging_out', 'an output directive', 'start', 'stop', condition='Task-DS'),
    *_output.directives('staging_out', 'an output directive', 'fail', condition='Task-DS', origin=OWN),
)

# `update_pushed` has two forms: one row for the bulk, and one for each update in it.
_UPDATES = (
    _update('update_request', 'a state update is to be sent', msg='state'),
    _update('update_pushed', 'a bulk of state updates has been sent', uid='', msg='bulk size: %d',
            profiles=('agent_0.prof',)),
    _update('update_pushed', 'a state update has been sent', msg='state'),
)

EVENTS = (*_SESSION, *_PILOTS, *_TASKS, *_UPDATES)

_FETCH = star(seq('session_fetch_start', 'session_fetch_stop'))

ORDERS = (
    PartialOrder(
        'Session',
        'session',
        seq('session_start', opt('config_parser_start', 'config_parser_stop'), opt('session_ok'), _FETCH,
            'session_close', 'session_stop', _FETCH),
        note='Each process that opens the session anew records this sequence. Files can be fetched more than once.',
    ),
    PartialOrder(
        'PMGRLaunchingComponent',
        'pilot',
        seq(star(seq('staging_in_start', alt('staging_in_fail', 'staging_in_stop'))), 'submission_start',
            'submission_stop'),
        note='A pilot on this machine needs no files to be transferred. Its own directives are in the same file.',
    ),
    PartialOrder('Pilot', 'file', seq('staging_in_start', alt('staging_in_fail', 'staging_in_stop'))),
    PartialOrder('Pilot', 'file', seq('staging_out_start', alt('staging_out_fail', 'staging_out_stop'))),
    PartialOrder('TMGRStagingInputComponent', 'task', seq(
        'create_sandbox_start', 'create_sandbox_stop',
        star(alt('staging_in_start', 'staging_in_fail', 'staging_in_stop')))),
    PartialOrder('TMGRStagingInputComponent', 'file',
                 seq('staging_in_start', alt('staging_in_fail', 'staging_in_stop'))),
    PartialOrder('TMGRStagingOutputComponent', 'file',
                 seq('staging_out_start', alt('staging_out_fail', 'staging_out_stop'))),
    PartialOrder('UpdateWorker', 'state update', seq('update_request', 'update_pushed')),
)
