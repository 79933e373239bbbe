"""Events that are recorded on the side of the application: session, managers, and their components."""

from __future__ import annotations

from functools import partial

from rp_profiling.catalogue.model import IN_USE, OWN, PartialOrder, Recorder, Star, alt, opt, seq
from rp_profiling.levels import DEFAULT, FULL

_session = Recorder('Session', 'session', ('rp.session.*.prof',))
_pmgr = Recorder('PilotManager', 'pilot manager', ('pmgr.*.prof',))
_launching = Recorder('PMGRLaunchingComponent', 'pilot', ('pmgr_launching.*.prof',))
# pilots are few: their single steps are recorded with the usual detail
_passing = partial(_launching, state='state of the pilot', detail=DEFAULT)
_staging = partial(_launching, msg='uid of the staging directive', optional=True, detail=DEFAULT)
_pilot = Recorder('Pilot', 'pilot', ('rp.session.*.prof',), DEFAULT)
_tmgr = Recorder('TaskManager', 'task', ('tmgr.*.prof',))
_input = Recorder('TMGRStagingInputComponent', 'task', ('tmgr_staging_input.*.prof',), DEFAULT)
_output = Recorder('TMGRStagingOutputComponent', 'task', ('tmgr_staging_output.*.prof',), DEFAULT)
_coordination = Recorder('Coordination', 'task or pilot', ('hub.prof', 'mongodb.prof'))
_update = Recorder('UpdateWorker', 'task', ('agent_0.prof',), FULL)

# the session's own order has the two config_parser events, which the model only names
_SESSION = (
    _session('session_start', 'a new session is being made'),
    _session('config_parser_start', 'platform definitions are about to be read', optional=True),
    _session('config_parser_stop', 'platform definitions have been read', optional=True),
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
    _passing('get', 'a pilot reaches the component'),
    _passing('publish', 'the state of a pilot is published'),
    _passing('put', 'a pilot has been passed to its platform', msg='label of the platform'),
    _staging('staging_in_start', 'the pilot sandbox is being made, or a file for it is being transferred'),
    _staging('staging_in_fail', 'the sandbox could not be made, or the file not be transferred', origin=OWN),
    _staging('staging_in_stop', 'the pilot sandbox has been made, or the file has been transferred'),
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
    _tmgr('get', 'the application hands over a bulk of tasks', uid='task manager', msg='bulk size: %d', detail=DEFAULT),
    _tmgr('get', 'the application hands over a task', detail=DEFAULT),
    _tmgr('cache_hit', 'a task gets a cached result, and does not run', optional=True, origin=OWN, detail=DEFAULT),
    _tmgr('put', 'a bulk of tasks has been passed to the coordinator', uid='task manager', msg='bulk size: %d',
          detail=DEFAULT, origin=OWN),
    _input('create_sandbox_start', 'the task sandbox is being made', condition='Task-DS'),
    _input('create_sandbox_stop', 'the task sandbox has been made', condition='Task-DS'),
    *_input.directives('staging_in', 'an input directive', 'start', 'stop', condition='Task-DS'),
    *_input.directives('staging_in', 'an input directive', 'fail', condition='Task-DS', origin=OWN),
    *_input.directives('staging_in_tar', 'the transfer of several files as one archive', 'start', 'stop',
                       condition='Task-DS'),
    *_output.directives('staging_out', 'an output directive', 'start', 'stop', condition='Task-DS'),
    *_output.directives('staging_out', 'an output directive', 'fail', condition='Task-DS', origin=OWN),
    _output('drop', 'a task goes no further, as its state is final', state='state of the task', detail=FULL),
)

# `update_pushed` has two forms: one row for the bulk, and one for each update in it.
_UPDATES = (
    _update('update_request', 'a state update is to be sent', msg='state'),
    _update('update_pushed', 'a bulk of state updates has been sent', uid='', msg='bulk size: %d', detail=DEFAULT),
    _update('update_pushed', 'a state update has been sent', msg='state'),
)

_COORDINATION = (
    _coordination('update_refused', 'an agent has reported on a task or pilot that is not (or no longer) bound to its '
                  'pilot; the report is ignored', msg='pilot of the agent', condition='RUNTIME', origin=OWN),
)

EVENTS = (*_SESSION, *_PILOTS, *_TASKS, *_UPDATES, *_COORDINATION)

_FETCHED = seq('session_fetch_start', 'session_fetch_stop')
_CONFIG_READ = seq('config_parser_start', 'config_parser_stop')

ORDERS = (
    PartialOrder(
        'Session',
        'session',
        seq('session_start', opt(_CONFIG_READ), opt('session_ok'), Star(alt(_CONFIG_READ, _FETCHED)), 'session_close',
            'session_stop', Star(_FETCHED)),
        note='Each process that opens the session anew records this sequence. Files can be read and fetched more than '
             'once.',
    ),
    PartialOrder(
        'PMGRLaunchingComponent',
        'pilot',
        seq(Star(seq('staging_in_start', alt('staging_in_fail', 'staging_in_stop'))), 'submission_start',
            'submission_stop'),
        note='The launcher makes the sandboxes of pilots on other hosts, between the other two events.',
    ),
    PartialOrder('Pilot', 'file', seq('staging_in_start', alt('staging_in_fail', 'staging_in_stop'))),
    PartialOrder('Pilot', 'file', seq('staging_out_start', alt('staging_out_fail', 'staging_out_stop'))),
    PartialOrder('TMGRStagingInputComponent', 'task', seq(
        'create_sandbox_start', 'create_sandbox_stop',
        Star(alt('staging_in_start', 'staging_in_fail', 'staging_in_stop')))),
    PartialOrder('TMGRStagingInputComponent', 'file',
                 seq('staging_in_start', alt('staging_in_fail', 'staging_in_stop'))),
    PartialOrder('TMGRStagingOutputComponent', 'file',
                 seq('staging_out_start', alt('staging_out_fail', 'staging_out_stop'))),
    PartialOrder('UpdateWorker', 'state update', seq('update_request', opt('update_pushed')),
                 note='If the agent is busy, a later state replaces one that is not sent yet.'),
)
