"""Task descriptions, and their attribute names as constants (`UID`, `RANKS` ...)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rp_api import constants as c
from rp_api import units
from rp_api.description import casts, task_rules
from rp_api.description.after import after, not_empty
from rp_api.description.casts import at_least, mapping, one_of, path, reference, structure
from rp_api.description.container import container
from rp_api.description.task_rules import RESERVED_UIDS as RESERVED_UIDS
from rp_api.description.typed import Description
from rp_api.failures import retry_rules
from rp_api.record import Cast, Field

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rp_api.description.attributes import TaskAttributes

UID = 'uid'
NAME = 'name'
MODE = 'mode'

EXECUTABLE = 'executable'
ARGUMENTS = 'arguments'
INFO_PATTERN = 'info_pattern'
CODE = 'code'
FUNCTION = 'function'
METHOD = 'method'
ARGS = 'args'
KWARGS = 'kwargs'
COMMAND = 'command'
LITERAL_ARGUMENTS = 'literal_arguments'

SANDBOX = 'sandbox'
ENVIRONMENT = 'environment'
NAMED_ENV = 'named_env'
CONTAINER = 'container'
PRE_LAUNCH = 'pre_launch'
POST_LAUNCH = 'post_launch'
PRE_EXEC = 'pre_exec'
PRE_EXEC_SYNC = 'pre_exec_sync'
POST_EXEC = 'post_exec'
STDOUT = 'stdout'
STDERR = 'stderr'
INPUT_STAGING = 'input_staging'
OUTPUT_STAGING = 'output_staging'
STAGE_ON_ERROR = 'stage_on_error'

PRIORITY = 'priority'
NICE = 'nice'
USE_MPI = 'use_mpi'
RANKS = 'ranks'
RANKS_PER_NODE = 'ranks_per_node'
CORES_PER_RANK = 'cores_per_rank'
GPUS_PER_RANK = 'gpus_per_rank'
THREADING_TYPE = 'threading_type'
GPU_TYPE = 'gpu_type'
LFS_PER_RANK = 'lfs_per_rank'
MEM_PER_RANK = 'mem_per_rank'
SLOTS = 'slots'
PILOT = 'pilot'
PARTITION = 'partition'
TAGS = 'tags'

RAPTOR_ID = 'raptor_id'
RAPTOR_CLASS = 'raptor_class'
RAPTOR_FILE = 'raptor_file'
TRANSPORT = 'transport'

AFTER = 'after'
SERVICE = 'service'
SERVICES = 'services'
METADATA = 'metadata'
TIMEOUT = 'timeout'
STARTUP_TIMEOUT = 'startup_timeout'
RESTARTABLE = 'restartable'
FORWARD_SIGNALS = 'forward_signals'
CLEANUP = 'cleanup'
CACHE = 'cache'
RETRIES = 'retries'
RETRY_ON = 'retry_on'
RETRY_DELAY = 'retry_delay'
RETRY_WITH = 'retry_with'
EXPECT = 'expect'

# old names
CPU_PROCESSES = 'cpu_processes'
CPU_PROCESS_TYPE = 'cpu_process_type'
CPU_THREADS = 'cpu_threads'
CPU_THREAD_TYPE = 'cpu_thread_type'
GPU_PROCESSES = 'gpu_processes'
GPU_PROCESS_TYPE = 'gpu_process_type'
GPU_THREADS = 'gpu_threads'
GPU_THREAD_TYPE = 'gpu_thread_type'
LFS_PER_PROCESS = 'lfs_per_process'
MEM_PER_PROCESS = 'mem_per_process'
SCHEDULER = 'scheduler'
WORKER_CLASS = 'worker_class'
WORKER_FILE = 'worker_file'

# types of processes and threads that are accepted and change nothing
_WITHOUT_EFFECT = (c.MPI, c.FUNC, c.SERIAL, c.GPU, c.GPU_MPI, c.GPU_OpenMP)


class Cache(str):
    """A value of `TaskDescription.cache` and of `cache` in `rp.Executor.options`: a key instead of a comparison.

    Args:
        key: Text that stands for all that the result depends on; the application changes it when the result would.

    Raises:
        ValueError: The key is no text, or empty.
    """

    __slots__ = ()

    def __new__(cls, *, key: str) -> Cache:
        """Return the key."""
        if not isinstance(key, str) or not key:
            raise ValueError(f'key is {key!r}, it must be text that is not empty')
        return super().__new__(cls, key)


class TaskDescription(Description):
    r"""The work, the resource requirements and the placement of a task.

    Create it with keywords or from a dict, or set its attributes one by one. Attributes can also be read and set as
    items:

        task = TaskDescription(executable='/bin/date', ranks=2)
        task = TaskDescription({'executable': '/bin/date', 'ranks': 2})
        task.arguments = ['-u']
        task['cores_per_rank'] = 4

    `$` in arguments is active, as in RADICAL-Pilot 1: `$NAME` is replaced by the value of a variable on the node of the
    task, by nothing if it is not set, and `$(command)` by the output of a command. Programs that have a `$` of their
    own, such as shell loops, awk and Python, need `literal_arguments=True`, or `\$`.

    An attribute that is not set has its default; setting it to None unsets it. Text may be given as a number or a
    `Path`; an executable or image that is a `Path` is never searched on the PATH or in a registry.

    Identity

    - `uid` (str, ''): unique within the task manager, which generates one (`task.000000` ...) by default. It is part of
      directory names and must be one word without "/"; `client`, `resource` and `pilot` are reserved.
    - `name` (str, ''): a label, available to the task as `$RP_TASK_NAME`.
    - `metadata` (dict, {}): plain data of the application, returned unchanged. A true value of the key `lm_skip_gpus`
      removes GPU options from the launch command (srun).

    Work

    - `mode` (str, 'task.executable'): the kind of task, one of the constants `TASK_EXECUTABLE`, `TASK_SERVICE`,
      `TASK_FUNCTION`, `TASK_METHOD`, `TASK_EVAL`, `TASK_EXEC`, `TASK_PROC`, `TASK_SHELL`, `RAPTOR_MASTER`,
      `RAPTOR_WORKER`, `AGENT_SERVICE`, or a mode that RAPTOR workers have registered. It determines which of the
      following attributes are required.
    - `executable` (str, ''): a program on the PATH or its path; for executables, services and TASK_PROC. Unless it is
      an existing path or one word without characters of a shell, it is a line of a shell, to which arguments are added.
    - `arguments` (list of str, []): its arguments, of which no shell sees spaces, quotes and wildcards; but see
      `literal_arguments`.
    - `literal_arguments` (bool, False): take the executable, the arguments and the values of `environment` exactly as
      they are. Otherwise, `$NAME` and `${NAME}` in arguments and values, and `$(command)` and backticks in arguments,
      are replaced on the task's node; a backslash before a `$` or a backtick gives the plain character.
    - `function` (callable or str, ''): for TASK_FUNCTION, a function, which is sent as it is when the task is
      submitted, the name of one of the worker, or a `PythonTask`.
    - `method` (str, ''): for TASK_METHOD, the name of a method of the worker; default is the value of `function`.
    - `args` (list, []) and `kwargs` (dict, {}): arguments of the function or method: plain data for a name, objects
      that can be pickled for a function. A `PythonTask` includes its arguments; leave these empty.
    - `code` (str, ''): for TASK_EVAL a Python expression, for TASK_EXEC Python statements.
    - `command` (str, ''): for TASK_SHELL, a command line.
    - `info_pattern` (str, ''): for services, the source of the service's information: `stdout:<regex>`,
      `stderr:<regex>` or `file:<path>:<regex>`; the last group of the regular expression matches the information.

    Environment

    - `sandbox` (str, ''): working directory, absolute or relative to the pilot's sandbox; default is `<uid>` in it.
    - `environment` (dict of str, {}): variables to export; `$NAME` and `${NAME}` in values are replaced, unless
      `literal_arguments` is set.
    - `named_env` (str, ''): an environment of the pilot (`Pilot.prepare_env`); the task waits until it is ready.
      Functions and methods run in their worker's environment and cannot have one.
    - `container` (dict or str, {}): the container in which each rank runs the executable: `image`, and optionally
      `tool` (`apptainer`, `singularity`, `podman` or `charliecloud`; default is the platform's, or the first that the
      node has), `binds` (list of `/path`, `/path:/target` or `/path:/target:ro`) and `gpu` (`nvidia` or `rocm`). A
      string is short for `image`. Other commands, such as `pre_exec`, run outside of it.
    - `pre_launch`, `post_launch` (list of str, []): shell commands run once before and after the launch, on the node
      that launches the task. If one fails, the task fails.
    - `pre_exec`, `post_exec` (list, []): shell commands run by each rank, on its node, before and after the executable.
      An entry is a command for all ranks, or a dict from rank numbers to a command or a list of commands. If one fails,
      the rank ends with exit code 1.
    - `pre_exec_sync` (bool, False): synchronise all ranks after `pre_exec`.
    - `stdout`, `stderr` (str, ''): files for the output, absolute or relative to the sandbox; default `<uid>.out` and
      `<uid>.err`.
    - `input_staging`, `output_staging` (list, []): staging directives, as text (`source > target`) or as dicts.
    - `stage_on_error` (bool, False): stage the output of failed and cancelled tasks, too.
    - `cleanup` (bool, False): remove the sandbox after the task has ended, if it lies in the pilot's sandbox.

    Resources

    - `ranks` (int, 1): number of processes, at least 1.
    - `ranks_per_node` (int, None): maximum number of ranks on one node; None means no limit.
    - `cores_per_rank` (int, 1): cores for each rank (hardware threads where a platform counts those), at least 1.
    - `gpus_per_rank` (float, 0.0): GPUs for each rank: a fraction of one GPU (0.25), or a whole number.
    - `lfs_per_rank`, `mem_per_rank` (int, 0): node-local storage and memory for each rank, in MB, or as '512MB' or
      '4GB'.
    - `use_mpi` (bool, None): start the ranks as MPI processes; None does so if there is more than one, and `verify`
      sets it accordingly.
    - `threading_type` (str, ''): '', `POSIX` or `OpenMP`; OpenMP sets `OMP_NUM_THREADS` to `cores_per_rank`.
    - `gpu_type` (str, ''): '', `CUDA`, `ROCm` or `Intel`; determines the variable that lists each rank's GPUs:
      `CUDA_VISIBLE_DEVICES`, `ROCR_VISIBLE_DEVICES` or `ZE_AFFINITY_MASK`. Ranks without GPUs see none: the first
      two are empty, the third one is 65535, a number that no device has.
    - `slots` (list of Slot, []): the exact placement of each rank, if the application does the scheduling itself.
    - `tags` (dict, {}): hints to the agent's scheduler. `colocate`: tasks with the same value run on the same nodes;
      `exclusive`: with different values of `colocate`, on different nodes if possible. `nodes`: a list of the only
      nodes to run on, by index or name. Some schedulers accept others (docs/understand/scheduler.md).

    Scheduling

    - `priority` (int, 0): tasks of higher priority are scheduled earlier, as far as possible.
    - `nice` (int, 0): niceness of the processes of each rank, from 0 to 19: the higher, the more often they let other
      processes on their cores run first. Calls of RAPTOR have that of their worker.
    - `pilot` (str, ''): the pilot to run on, as `Pilot` or uid; if empty, the task manager chooses.
    - `partition` (int, None): the partition of the pilot to run on.
    - `raptor_id` (str, ''): the RAPTOR master that executes the task, as `Task` or uid; `*` for any.
    - `raptor_class`, `raptor_file` (str, ''): the class of a RAPTOR master or worker, and its Python file.
    - `transport` (str, ''): how calls of a RAPTOR worker travel between its nodes: `mpi`, `zmq`, or the default of the
      platform; see docs/guides/raptor-nodes.md.
    - `service` (dict, {}): for services, the settings in docs/guides/services.md: `name`, `port`, `probe`, `liveness`,
      `restart`, `info` and `router`.
    - `services` (list of str, []): services that the task waits for, as names, uids or `Task` objects; it finds their
      information as `$RP_INFO_<NAME>`, in capitals, with `_` for other characters.
    - `after` (list or dict, []): tasks that have to end before this one starts, as `Task` objects or uids, and the
      condition for each: a list means that all have to be DONE; a dict has conditions as values, `done`, `ended` (in
      any state) or `failed` (FAILED or CANCELED). If a condition can no longer be met, the task is CANCELED. A source
      `task://UID/path` in `input_staging` implies the condition `done`. See docs/guides/dependencies.md.
    - `timeout` (float, 0.0): time after which the task is cancelled, counted from its launch, or from the start of its
      execution if `startup_timeout` is set; 0 means never. All times are seconds, text such as '90m', '1d12h' or
      '1:30:00', or a `timedelta`.
    - `startup_timeout` (float, 0.0): time within which execution must start, or a service must be ready; 0 means no
      limit.
    - `cache` (bool or str, False): use the result of an earlier task with equal description, inputs, executable and
      function, if the base directory has one, and store this one; a string, or `rp.Cache(key=...)`, is a key that
      stands for all of these. See docs/guides/cache.md.
    - `restartable` (bool, False): allow the task to run again when its job ends, or its node or agent dies; see
      docs/guides/several-pilots.md.
    - `forward_signals` (list, []): signals that the task gets when the job of its pilot gets them, as by
      `sbatch --signal=USR1@60`: some of `SIGHUP`, `SIGUSR1`, `SIGUSR2`, `SIGALRM` and `SIGXCPU`. They go to those
      processes of the task that have a handler. `SIGUSR2` in a job of Grid Engine ends the pilot.
    - `retries` (int, 0): further attempts after a failure, at most 1000; see docs/guides/errors-and-retries.md.
    - `retry_on` (list, []): the failures that are retried: exit codes, names of signals (`SIGBUS`), `stderr:<regex>`,
      and the kinds `exit`, `signal`, `memory`, `output`, `exception`, `timeout`, `node`, `pilot`, `lost`, `launch` and
      `internal`. If empty: all but `launch`.
    - `retry_delay` (float, 1.0): time before the first retry; doubled for each further one up to ten minutes, and
      varied by a quarter.
    - `retry_with` (dict, {}): attributes to change for each retry: a new value, or for numbers `*2` or `+1`, for
      example. Resources per rank grow to what a node has.
    - `expect` (list of str, []): files, absolute or relative to the sandbox, that must exist and not be empty when the
      program has ended with exit code 0, and commands (`command:./check.sh`) that must succeed; otherwise the task
      fails. The agent runs the commands in the sandbox, on its own node.

    Old names are accepted: `cpu_processes` (ranks), `cpu_threads` (cores_per_rank), `cpu_thread_type`
    (threading_type), `gpu_processes` (gpus_per_rank), `gpu_process_type` (gpu_type), `lfs_per_process` (lfs_per_rank),
    `mem_per_process` (mem_per_rank), `scheduler` (raptor_id), `worker_class` (raptor_class), `worker_file`
    (raptor_file). If both names are set, the old one takes precedence. `cpu_process_type`, `gpu_threads` and
    `gpu_thread_type` are accepted and have no effect.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        def __init__(self, from_dict: Mapping[str, Any] | None = None,
                     **attributes: Unpack[TaskAttributes]) -> None: ...

    _fields: ClassVar[Mapping[str, Field]] = {
        UID: Field(casts.uid, '', task_rules.uid),
        NAME: Field(str, ''),
        MODE: Field(str, c.TASK_EXECUTABLE),
        EXECUTABLE: Field(casts.program, ''),
        ARGUMENTS: Field([str], []),
        INFO_PATTERN: Field(str, ''),
        CODE: Field(str, ''),
        FUNCTION: Field(task_rules.function, ''),
        METHOD: Field(str, ''),
        ARGS: Field([Any], []),
        KWARGS: Field({str: Any}, {}),
        COMMAND: Field(str, ''),
        LITERAL_ARGUMENTS: Field(bool, False),
        SANDBOX: Field(str, '', path),
        ENVIRONMENT: Field({str: str}, {}),
        NAMED_ENV: Field(str, '', casts.path_part),
        CONTAINER: Field(container, {}),
        PRE_LAUNCH: Field([str], []),
        POST_LAUNCH: Field([str], []),
        PRE_EXEC: Field([task_rules.per_rank], []),
        PRE_EXEC_SYNC: Field(bool, False),
        POST_EXEC: Field([task_rules.per_rank], []),
        STDOUT: Field(str, '', path),
        STDERR: Field(str, '', path),
        INPUT_STAGING: Field([structure], []),
        OUTPUT_STAGING: Field([structure], []),
        STAGE_ON_ERROR: Field(bool, False),
        PRIORITY: Field(int, 0),
        NICE: Field(int, 0, task_rules.niceness),
        USE_MPI: Field(bool, None),
        RANKS: Field(int, 1, at_least(1)),
        RANKS_PER_NODE: Field(int, None, at_least(1)),
        CORES_PER_RANK: Field(int, 1, at_least(1)),
        GPUS_PER_RANK: Field(float, 0.0, task_rules.gpus),
        THREADING_TYPE: Field(one_of('', c.POSIX, c.OpenMP, ignored=(*_WITHOUT_EFFECT, c.CUDA)), ''),
        GPU_TYPE: Field(one_of('', c.CUDA, c.ROCm, c.INTEL, ignored=(*_WITHOUT_EFFECT, c.POSIX, c.OpenMP)), ''),
        LFS_PER_RANK: Field(int, 0),
        MEM_PER_RANK: Field(int, 0),
        SLOTS: Field([mapping], []),
        PILOT: Field(reference, ''),
        PARTITION: Field(int, None, at_least(0)),
        TAGS: Field({str: Any}, {}),
        RAPTOR_ID: Field(reference, ''),
        RAPTOR_CLASS: Field(str, ''),
        RAPTOR_FILE: Field(str, ''),
        TRANSPORT: Field(one_of('', c.TRANSPORT_MPI, c.TRANSPORT_ZMQ), ''),
        SERVICE: Field(task_rules.service, {}),
        SERVICES: Field([reference], [], task_rules.services),
        AFTER: Field(after, [], not_empty),
        METADATA: Field({str: Any}, {}),
        TIMEOUT: Field(float, 0.0, at_least(0)),
        STARTUP_TIMEOUT: Field(float, 0.0, at_least(0)),
        RESTARTABLE: Field(bool, False),
        FORWARD_SIGNALS: Field([casts.warning], []),
        CLEANUP: Field(bool, False),
        CACHE: Field(task_rules.cache, False),
        RETRIES: Field(int, 0, retry_rules.retries),
        RETRY_ON: Field([retry_rules.rule], []),
        RETRY_DELAY: Field(float, 1.0, at_least(0)),
        RETRY_WITH: Field(retry_rules.change, {}),
        EXPECT: Field([retry_rules.expected], []),
        CPU_PROCESS_TYPE: Field(Any, ''),
        GPU_THREADS: Field(Any, 0),
        GPU_THREAD_TYPE: Field(Any, ''),
    }

    _aliases: ClassVar[Mapping[str, str]] = {
        CPU_PROCESSES: RANKS,
        CPU_THREADS: CORES_PER_RANK,
        CPU_THREAD_TYPE: THREADING_TYPE,
        GPU_PROCESSES: GPUS_PER_RANK,
        GPU_PROCESS_TYPE: GPU_TYPE,
        LFS_PER_PROCESS: LFS_PER_RANK,
        MEM_PER_PROCESS: MEM_PER_RANK,
        SCHEDULER: RAPTOR_ID,
        WORKER_CLASS: RAPTOR_CLASS,
        WORKER_FILE: RAPTOR_FILE,
    }

    _units: ClassVar[Mapping[str, Cast]] = {
        **dict.fromkeys((LFS_PER_RANK, MEM_PER_RANK), units.megabytes),
        **dict.fromkeys((TIMEOUT, STARTUP_TIMEOUT, RETRY_DELAY), units.seconds),
    }

    @classmethod
    def _instead(cls, name: str) -> str | None:
        from rp_api.description.wrong_names import OF_TASKS  # only needed for messages

        return OF_TASKS.get(name)

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes and other keys as plain data; a function with its arguments as a `PythonTask`."""
        full = super().as_dict()
        if callable(full[FUNCTION]):
            from rp_api.description.python_task import PythonTask  # few tasks are functions

            full[FUNCTION] = PythonTask(full[FUNCTION], full[ARGS], full[KWARGS])
            full |= {ARGS: [], KWARGS: {}}
        return full

    def derive(self) -> None:
        """Set `use_mpi`, unless it is set: True for more than one rank."""
        if self[USE_MPI] is None:
            self[USE_MPI] = self[RANKS] > 1

    _verify = task_rules.verify
    verify_call = task_rules.verify_call
