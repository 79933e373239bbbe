"""Pilot descriptions, and their attribute names as constants (`RESOURCE`, `NODES` ...)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rp_api import constants as c
from rp_api import units
from rp_api.description.casts import PILOT_UID, at_least, path, structure, uid
from rp_api.description.partitions import check_sizes, sizes, whole
from rp_api.description.task import TaskDescription
from rp_api.description.typed import Description
from rp_api.errors import DescriptionError
from rp_api.record import Cast, CastError, Field

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rp_api.description.attributes import PilotAttributes

UID = 'uid'
RESOURCE = 'resource'
ACCESS_SCHEMA = 'access_schema'
RUNTIME = 'runtime'
JOB_NAME = 'job_name'
SANDBOX = 'sandbox'
NODES = 'nodes'
BACKUP_NODES = 'backup_nodes'
CORES = 'cores'
GPUS = 'gpus'
MEMORY = 'memory'
QUEUE = 'queue'
PROJECT = 'project'
APP_COMM = 'app_comm'
CLEANUP = 'cleanup'
EXIT_ON_ERROR = 'exit_on_error'
FAIL_IF_UNSCHEDULABLE = 'fail_if_unschedulable'
REQUEUE = 'requeue'
INPUT_STAGING = 'input_staging'
OUTPUT_STAGING = 'output_staging'
PREPARE_ENV = 'prepare_env'
SERVICES = 'services'
ENABLE_EP = 'enable_ep'
RECONFIG_SRC = 'reconfig_src'
PARTITIONS = 'partitions'
CONFIG = '_config'

ALLOCATION = 'local.allocation'
"""The platform on which a pilot without a size gets all nodes of the enclosing batch job."""


def _service(value: Any) -> TaskDescription:
    """Cast to a checked description of a service; a missing mode is set."""
    if not isinstance(value, Mapping):
        raise CastError('a TaskDescription or a dict')
    service = value if isinstance(value, TaskDescription) else TaskDescription(value)
    if service.mode in (None, c.TASK_EXECUTABLE, c.TASK_SERVICE):
        service = service | {'mode': c.AGENT_SERVICE}
    elif service.mode != c.AGENT_SERVICE:
        raise CastError(f'a TaskDescription of mode {c.AGENT_SERVICE!r}')
    service.check()
    return service


def _channels(names: list[str]) -> str | None:
    """Check the names of channels, which become parts of environment variables."""
    fit = all(re.fullmatch(r'[A-Za-z][A-Za-z0-9_]*_(queue|pubsub)', name) for name in names)
    if fit and len({name.upper() for name in names}) == len(names):
        return None
    return 'different names of letters, digits and "_", each of which ends in "_queue" or "_pubsub"'


class PilotDescription(Description):
    """The platform, the size, the run time and the preparation of a pilot.

    Create it with keywords or from a dict, or set its attributes one by one. Attributes can also be read and set as
    items:

        pilot = PilotDescription(resource='local.localhost', runtime=15)
        pilot.nodes = 1

    An attribute that is not set has its default; setting it to None unsets it. Text may be given as a number or a
    `Path`.

    - `uid` (str, None): unique within the session, which generates one (`pilot.0000` ...) by default. It is part of
      directory names and must be one word without "/".
    - `resource` (str, None): label of the platform, `<site>.<machine>`; required.
    - `access_schema` (str, None): name of the access schema, if the platform's definition has several.

    Size. Required: `nodes`, `cores` (and `gpus`), or the sizes of all `partitions`. Without a size, a pilot
    on `local.allocation` has all nodes of the job that the application runs in.

    - `nodes` (int, 0): number of whole nodes.
    - `backup_nodes` (int, 0): additional nodes to request, which replace broken ones when the pilot starts.
    - `cores`, `gpus` (int, 0): totals; they are rounded up to whole nodes.
    - `memory` (int, 0): total memory to request from the batch system, in MB or as '64GB'; 0 requests none, or the sum
      of the partitions if they are the pilot's size and each names its memory.
    - `runtime` (int, 10): minutes, or as '90m', '1d12h', '1:30:00' or a `timedelta`, rounded up; more than 0.
    - `partitions` (int or list of dicts, 0): parts of the pilot, each with its own agent: the number of equal
      partitions, or the size of each, `{'nodes': 2}` or `{'cores': 4, 'gpus': 1, 'memory': 2048}` (MB; by default, a
      share in proportion to the cores). Resources beyond the listed sizes remain for partitions that are added later
      (`Pilot.add_partition`). 0: the pilot is not divided.

    Batch job

    - `queue` (str, None): queue or partition, or QOS where the platform uses QOS as queues; default is the platform's.
      `<partition>:<qos>` sets both.
    - `project` (str, None): the allocation to charge; default is the platform's. `<project>:<reservation>` sets both.
    - `job_name` (str, None): name of the batch job; default is the pilot's uid.
    - `requeue` (bool, False): allow the batch system to restart the job, for example after the loss of its first node.
      The restarted pilot runs the tasks that had not started, and those that are `restartable`.
    - `fail_if_unschedulable` (bool, False): fail the pilot when the batch system reports that the job cannot start
      without a change: it exceeds limits, or its partition is down. By default the pilot waits, and `Pilot.log` has
      the reason.
    - `exit_on_error` (bool, True): interrupt the application when the pilot fails.

    Files

    - `sandbox` (str, None): base directory on the platform, instead of the default. `$VAR` is expanded on the
      client, `%(pd.<attribute>)s` is replaced by that attribute of this description.
    - `input_staging` (list, []): files of the client to stage to the pilot's sandbox: paths or staging directives.
    - `output_staging` (list of str, []): names in the pilot's sandbox to archive in `staging_output.tgz` at its end.
    - `cleanup` (bool, False): remove the pilot's sandbox at its end.

    Preparation

    - `prepare_env` (dict of dicts, {}): specifications of named environments to build when the agent starts, by name,
      see `Pilot.prepare_env`. Only tasks that name an environment wait for it.
    - `services` (list of TaskDescription, []): services to start before the pilot accepts tasks.
    - `app_comm` (list of str, []): channels for messages between tasks, which the pilot opens: names of letters, digits
      and "_" that end in `_queue` or `_pubsub`; see `AppQueue`, `AppPublisher` and `AppSubscriber`.
    - `enable_ep` (bool, False): accept tasks from other sources than the client.
    - `reconfig_src` (str, None): JSON file with task shapes, for the scheduler that changes them.
    - `_config` (dict, {}): overrides of the agent's configuration, such as the number and placement of executors; for
      tests and measurements.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        def __init__(self, from_dict: Mapping[str, Any] | None = None,
                     **attributes: Unpack[PilotAttributes]) -> None: ...

    _fields: ClassVar[Mapping[str, Field]] = {
        UID: Field(uid, None, PILOT_UID),
        RESOURCE: Field(str, None),
        ACCESS_SCHEMA: Field(str, None),
        RUNTIME: Field(int, 10, at_least(1)),
        JOB_NAME: Field(str, None),
        SANDBOX: Field(str, None, path),
        NODES: Field(int, 0, at_least(0)),
        BACKUP_NODES: Field(int, 0, at_least(0)),
        CORES: Field(int, 0, at_least(0)),
        GPUS: Field(int, 0, at_least(0)),
        MEMORY: Field(int, 0),
        QUEUE: Field(str, None),
        PROJECT: Field(str, None),
        APP_COMM: Field([str], [], _channels),
        CLEANUP: Field(bool, False),
        EXIT_ON_ERROR: Field(bool, True),
        FAIL_IF_UNSCHEDULABLE: Field(bool, False),
        REQUEUE: Field(bool, False),
        INPUT_STAGING: Field([structure], []),
        OUTPUT_STAGING: Field([str], []),
        PREPARE_ENV: Field({str: {str: Any}}, {}),
        SERVICES: Field([_service], []),
        ENABLE_EP: Field(bool, False),
        RECONFIG_SRC: Field(str, None),
        PARTITIONS: Field(sizes, 0),
        CONFIG: Field({str: Any}, {}),
    }

    _units: ClassVar[Mapping[str, Cast]] = {RUNTIME: units.minutes, MEMORY: units.megabytes}

    @classmethod
    def _instead(cls, name: str) -> str | None:
        from rp_api.description.wrong_names import OF_PILOTS  # only needed for messages

        if name not in OF_PILOTS and name in list(TaskDescription()):
            return f'set TaskDescription.{name}'
        return OF_PILOTS.get(name)

    def _verify(self) -> None:
        if self.prepare_env:
            from rp_api.description.environment import normal_form  # most pilots have none

            for name, spec in self.prepare_env.items():
                normal_form(name, spec)
        if not self.resource:
            raise DescriptionError('PilotDescription.resource is not set, but it is needed: the label of a platform, '
                                   "such as 'local.localhost'")
        if isinstance(self.partitions, list) and not self.nodes and not self.cores:
            found = whole(self.partitions)
            self.update(found | {MEMORY: self.memory or found.get(MEMORY, 0)})
        if self.nodes:
            self._verify_whole_nodes()
            self._verify_partitions()
            return
        if self.backup_nodes:
            raise DescriptionError(f'PilotDescription.backup_nodes is {self.backup_nodes}, but nodes is not set: '
                                   'only a pilot that is sized by nodes can have backup nodes')
        if not self.cores:
            if self.resource == ALLOCATION and not self.gpus and not self.partitions:
                return
            raise DescriptionError('PilotDescription.nodes and cores are both 0, but one of them is needed')
        self._verify_partitions()

    def _verify_partitions(self) -> None:
        if self.partitions:
            check_sizes(self.partitions, self.nodes, self.cores, self.gpus, self.memory)

    def _verify_whole_nodes(self) -> None:
        for name in (CORES, GPUS):
            if self[name]:
                raise DescriptionError(f'PilotDescription.nodes is {self.nodes} and {name} is {self[name]}, but whole '
                                       f'nodes have all their {name}: set only one of them')
