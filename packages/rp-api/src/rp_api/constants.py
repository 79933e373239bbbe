"""The constants of the interface: values that applications use, and names that are sent over the wire.

The values are those of RADICAL-Pilot 1.103, because applications use them literally and traces and session dumps hold
them. State names belong to `rp_api.states`.
"""

from __future__ import annotations

# modes of tasks (attribute `mode` of a task description)
TASK_EXECUTABLE = 'task.executable'
TASK_SERVICE = 'task.service'
TASK_FUNCTION = 'task.function'
TASK_METHOD = 'task.method'
TASK_EVAL = 'task.eval'
TASK_EXEC = 'task.exec'
TASK_PROC = 'task.proc'
TASK_SHELL = 'task.shell'
RAPTOR_MASTER = 'raptor.master'
RAPTOR_WORKER = 'raptor.worker'
AGENT_SERVICE = 'agent.service'

TASK_FUNC = TASK_FUNCTION
TASK_METH = TASK_METHOD

TASK_MODES = (
    TASK_EXECUTABLE, TASK_SERVICE, TASK_FUNCTION, TASK_METHOD, TASK_EVAL, TASK_EXEC, TASK_PROC, TASK_SHELL,
    RAPTOR_MASTER, RAPTOR_WORKER, AGENT_SERVICE,
)

# actions of staging directives
COPY = 'Copy'
LINK = 'Link'
MOVE = 'Move'
TRANSFER = 'Transfer'
TARBALL = 'Tarball'
DOWNLOAD = 'Download'

STAGING_ACTIONS = (COPY, LINK, MOVE, TRANSFER, TARBALL, DOWNLOAD)

# flags of staging directives, as bits
RECURSIVE = 1
CREATE_PARENTS = 2
NON_FATAL = 4

DEFAULT_ACTION = TRANSFER
DEFAULT_FLAGS = CREATE_PARENTS
DEFAULT_PRIORITY = 0

# schedulers of a task manager
SCHEDULER_ROUND_ROBIN = 'round_robin'
SCHEDULER_BACKFILLING = 'backfilling'
SCHEDULER_DEFAULT = SCHEDULER_ROUND_ROBIN

# metrics that callbacks can be registered for
TASK_STATE = 'TASK_STATE'
WAIT_QUEUE_SIZE = 'WAIT_QUEUE_SIZE'
PILOT_STATE = 'PILOT_STATE'

TMGR_METRICS = [TASK_STATE, WAIT_QUEUE_SIZE]
PMGR_METRICS = [PILOT_STATE]

# occupation of a core or GPU: the used share, or None if it must not be used
FREE: float = 0.0
BUSY: float = 1.0
DOWN: float | None = None

# kinds of threads, processes and GPUs
POSIX = 'POSIX'
MPI = 'MPI'
OpenMP = 'OpenMP'
CUDA = 'CUDA'
ROCm = 'ROCm'
INTEL = 'Intel'
FUNC = 'FUNC'
SERIAL = 'Serial'
GPU = 'GPU'
GPU_MPI = 'GPU_MPI'
GPU_OpenMP = 'GPU_OpenMP'

# roles in RAPTOR
MASTER = 'master'
WORKER = 'worker'

# transports between the nodes of a RAPTOR worker
TRANSPORT_MPI = 'mpi'
TRANSPORT_ZMQ = 'zmq'

# queues: each entity is delivered to exactly one reader
PMGR_LAUNCHING_QUEUE = 'pmgr_launching_queue'
TMGR_SCHEDULING_QUEUE = 'tmgr_scheduling_queue'
TMGR_STAGING_INPUT_QUEUE = 'tmgr_staging_input_queue'
TMGR_STAGING_OUTPUT_QUEUE = 'tmgr_staging_output_queue'
AGENT_STAGING_INPUT_QUEUE = 'agent_staging_input_queue'
AGENT_SCHEDULING_QUEUE = 'agent_scheduling_queue'
AGENT_EXECUTING_QUEUE = 'agent_executing_queue'
AGENT_STAGING_OUTPUT_QUEUE = 'agent_staging_output_queue'
AGENT_COLLECTING_QUEUE = 'agent_collecting_queue'
RAPTOR_SCHEDULING_QUEUE = 'raptor_scheduling_queue'
PROXY_TASK_QUEUE = 'proxy_task_queue'
CLIENT_QUEUE = 'client_queue'
STAGER_REQUEST_QUEUE = 'stager_request_queue'

# pubsubs: each message is delivered to every subscriber
CONTROL_PUBSUB = 'control_pubsub'
STATE_PUBSUB = 'state_pubsub'
LOG_PUBSUB = 'log_pubsub'
TMGR_UNSCHEDULE_PUBSUB = 'tmgr_unschedule_pubsub'
TMGR_RESCHEDULE_PUBSUB = 'tmgr_reschedule_pubsub'
AGENT_SCHEDULE_PUBSUB = 'agent_schedule_pubsub'
AGENT_UNSCHEDULE_PUBSUB = 'agent_unschedule_pubsub'
AGENT_STAGING_INPUT_PUBSUB = 'agent_staging_input_pubsub'
PROXY_CONTROL_PUBSUB = 'proxy_control_pubsub'
PROXY_STATE_PUBSUB = 'proxy_state_pubsub'
CLIENT_PUBSUB = 'client_pubsub'
STAGER_RESPONSE_PUBSUB = 'stager_response_pubsub'

# components: the prefixes of their uids and trace files
PMGR_LAUNCHING_COMPONENT = 'pmgr_launching'
TMGR_SCHEDULING_COMPONENT = 'tmgr_scheduling'
TMGR_STAGING_INPUT_COMPONENT = 'tmgr_staging_input'
TMGR_STAGING_OUTPUT_COMPONENT = 'tmgr_staging_output'
AGENT_STAGING_INPUT_COMPONENT = 'agent_staging_input'
AGENT_SCHEDULING_COMPONENT = 'agent_scheduling'
AGENT_EXECUTING_COMPONENT = 'agent_executing'
AGENT_STAGING_OUTPUT_COMPONENT = 'agent_staging_output'
