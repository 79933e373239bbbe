"""The public interface: `import radical.pilot as rp`.

A table lists the public names, each with the module and the distribution that provide it. A name is imported on first
use (PEP 562) and then kept as an attribute of this module, where `mock.patch` can replace it. Using a name whose
distribution is not installed raises an `AttributeError` that names the `pip install` command, so that `hasattr` works.
`__init__.pyi` declares the same names for type checkers and editors.
"""

from __future__ import annotations

import os
from importlib import import_module

from radical.pilot import _modules
from rp_api import __version__

version = version_short = version_base = version_detail = __version__
version_branch = version_tag = None

# (distribution, module): the public names that the module provides
_SOURCES = {
    ('rp-client', 'rp_client.handles.session'): 'Session',
    ('rp-client', 'rp_client.handles.pilot_manager'): 'PilotManager',
    ('rp-client', 'rp_client.handles.task_manager'): 'TaskManager',
    ('rp-client', 'rp_client.handles.sweep'): 'Sweep',
    ('rp-client', 'rp_client.handles.pilot'): 'Pilot',
    ('rp-client', 'rp_client.handles.partition'): 'Partition',
    ('rp-client', 'rp_client.handles.task'): 'Task',
    ('rp-client', 'rp_client.completion.result'): 'TaskResult',
    ('rp-client', 'rp_client.completion.waits'): 'wait as_completed',
    ('rp-client', 'rp_client.progress'): 'TaskProgress',
    ('rp-client', 'rp_client.handles.raptor'): 'RaptorMaster RaptorWorker',
    ('rp-client', 'rp_client.executor.executor'): 'Executor',
    ('rp-client', 'rp_client.executor.manager'): 'BrokenPilotExecutor',
    ('rp-api', 'rp_api.description.pilot'): 'PilotDescription',
    ('rp-api', 'rp_api.description.task'): 'Cache TaskDescription',
    ('rp-api', 'rp_api.failures.task_error'): """
        TaskError TaskCanceledError TaskTimeoutError TaskLostError TaskMemoryError""",
    ('rp-api', 'rp_api.errors'): 'NoPilot',
    ('rp-api', 'rp_api.task_info.usage'): 'TaskTimes TaskUsage',
    ('rp-api', 'rp_api.endpoint.visitor'): 'PilotEndpoint',
    ('rp-api', 'rp_api.app_comm.channel'): 'AppQueue AppPublisher AppSubscriber',
    ('rp-api', 'rp_api.description.python_task'): 'PythonTask pythontask',
    ('rp-api', 'rp_api.platforms.definition'): 'ResourceConfig',
    ('rp-api', 'rp_api.resources'): """
        ResourceOccupation RO Slot RankRequirements Node NumaNode NodeList NumaNodeList NumaDomainMap NumaDomain""",
    ('rp-api', 'rp_api.states'): """
        NEW DONE FAILED CANCELED INITIAL FINAL
        PMGR_LAUNCHING_PENDING PMGR_LAUNCHING PMGR_ACTIVE_PENDING PMGR_ACTIVE
        TMGR_SCHEDULING_PENDING TMGR_SCHEDULING TMGR_STAGING_INPUT_PENDING TMGR_STAGING_INPUT
        AGENT_STAGING_INPUT_PENDING AGENT_STAGING_INPUT AGENT_SCHEDULING_PENDING AGENT_SCHEDULING
        AGENT_EXECUTING_PENDING AGENT_EXECUTING AGENT_STAGING_OUTPUT_PENDING AGENT_STAGING_OUTPUT
        TMGR_STAGING_OUTPUT_PENDING TMGR_STAGING_OUTPUT""",
    ('rp-api', 'rp_api.constants'): """
        TASK_EXECUTABLE TASK_SERVICE TASK_FUNC TASK_FUNCTION TASK_METH TASK_METHOD TASK_EVAL TASK_EXEC TASK_PROC
        TASK_SHELL RAPTOR_MASTER RAPTOR_WORKER AGENT_SERVICE TASK_MODES
        COPY LINK MOVE TRANSFER TARBALL DOWNLOAD STAGING_ACTIONS RECURSIVE CREATE_PARENTS NON_FATAL
        DEFAULT_ACTION DEFAULT_FLAGS DEFAULT_PRIORITY
        SCHEDULER_ROUND_ROBIN SCHEDULER_BACKFILLING SCHEDULER_DEFAULT
        TASK_STATE WAIT_QUEUE_SIZE PILOT_STATE TMGR_METRICS PMGR_METRICS
        FREE BUSY DOWN POSIX MPI OpenMP CUDA ROCm INTEL FUNC SERIAL GPU GPU_MPI GPU_OpenMP MASTER WORKER
        TRANSPORT_MPI TRANSPORT_ZMQ
        PMGR_LAUNCHING_QUEUE TMGR_SCHEDULING_QUEUE TMGR_STAGING_INPUT_QUEUE TMGR_STAGING_OUTPUT_QUEUE
        AGENT_STAGING_INPUT_QUEUE AGENT_SCHEDULING_QUEUE AGENT_EXECUTING_QUEUE AGENT_STAGING_OUTPUT_QUEUE
        AGENT_COLLECTING_QUEUE RAPTOR_SCHEDULING_QUEUE PROXY_TASK_QUEUE CLIENT_QUEUE STAGER_REQUEST_QUEUE
        CONTROL_PUBSUB STATE_PUBSUB LOG_PUBSUB TMGR_UNSCHEDULE_PUBSUB TMGR_RESCHEDULE_PUBSUB
        AGENT_SCHEDULE_PUBSUB AGENT_UNSCHEDULE_PUBSUB AGENT_STAGING_INPUT_PUBSUB PROXY_CONTROL_PUBSUB
        PROXY_STATE_PUBSUB CLIENT_PUBSUB STAGER_RESPONSE_PUBSUB
        PMGR_LAUNCHING_COMPONENT TMGR_SCHEDULING_COMPONENT TMGR_STAGING_INPUT_COMPONENT
        TMGR_STAGING_OUTPUT_COMPONENT AGENT_STAGING_INPUT_COMPONENT AGENT_SCHEDULING_COMPONENT
        AGENT_EXECUTING_COMPONENT AGENT_STAGING_OUTPUT_COMPONENT""",
}

_modules.install_finder()

if 'RP_ENABLE_OLD_DEFINES' in os.environ:
    _SOURCES['rp-api', 'rp_api.states'] += ' ' + ' '.join(import_module('rp_api.states').OLD_DEFINES)

_TABLE = {name: source for source, names in _SOURCES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import and return the object called `name`; raise AttributeError if it is unknown or not installed."""
    if name in _modules.children(''):  # available without an import statement
        sentence = _modules.not_installed(name)
        if sentence:
            raise AttributeError(f'{__name__}.{name}: {sentence}')
        return import_module(f'{__name__}.{name}')
    if name == '__all__':
        return [entry for entry in __dir__() if not entry.startswith('_')]
    if name not in _TABLE:
        return _by_old_name(name)
    distribution, module = _TABLE[name]
    try:
        value = getattr(import_module(module), name)
    except ModuleNotFoundError:
        from rp_api.distributions import missing

        sentence = missing(distribution)
        if sentence is None:  # the distribution is installed, but one of its own requirements is not
            raise
        raise AttributeError(f'{__name__}.{name}: {sentence}') from None
    globals()[name] = value
    return value


def _by_old_name(name: str) -> object:
    """Return the object that was called `name` in version 0, with a warning; raise AttributeError if there was none."""
    try:
        new = None if name.startswith('_') else import_module('rp_client.old_names').present_name(name)
    except ModuleNotFoundError:   # rp-client is not installed
        new = None
    if new is None:
        from rp_api.record import suggestion  # only needed for messages

        hint = '' if name.startswith('_') else suggestion(name, __dir__())
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}{hint}')
    return globals().get(new) or __getattr__(new)


def __dir__() -> list[str]:
    """Return the public names whose distribution is installed."""
    from rp_api.distributions import missing

    absent = {distribution for distribution in {source[0] for source in _SOURCES} if missing(distribution)}
    present = {name for name, source in _TABLE.items() if source[0] not in absent}
    versions = {name for name in globals() if name.startswith('version')}
    modules = {name for name in _modules.children('') if not _modules.not_installed(name)}
    return sorted(present | versions | modules | {'__version__'})
