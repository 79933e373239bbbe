"""The schema of platform definitions: the fields of a configuration file, with types and defaults.

The fields are those of the resource configurations of RADICAL-Pilot 1.103. If the number of cores, GPUs or MB is 0, the
resource manager detects it on the machine. `UNITS` lists the units of numbers; `review` reports values that are valid
but implausible.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from rp_api.constants import TRANSPORT_MPI, TRANSPORT_ZMQ
from rp_api.description.container import TOOLS
from rp_api.errors import DescriptionError, attribute_type_error, unknown_attribute
from rp_api.record import CastError, Record, anything, count, dict_of, field, flag, list_of, record, text
from rp_api.units import megabytes, seconds

CHOICES = {'virtenv_mode': ('local', 'none', 'private', 'create', 'update', 'use', 'recreate'),
           'python_dist': ('default', 'anaconda'), 'queue_type': ('partition', 'qos'), 'job_size': ('cores', 'nodes'),
           'gpu_request': ('gpus', 'gres', 'none')}
"""The values of fields that have only a few."""

UNITS = {'mem_per_node': 'MB', 'lfs_size_per_node': 'MB', 'hb_delay': 's', 'hb_timeout': 's', 'hb_frequency': 's',
         'cores_per_node': 'cores', 'gpus_per_node': 'GPUs'}
"""The units of fields. A MB is 1024 * 1024 bytes."""

_SHELL = re.compile(r'[^\s\0-][^\s\0]*')

# names of earlier versions, which still occur in users' files
_RENAMED = {
    'lrms': 'resource_manager',
    'task_launch_method': 'launch_methods',
    'mpi_launch_method': 'launch_methods',
    'global_virtenv': 'virtenv',
    'export_to_cu': 'task_environment',
}


def _text_or_dict(value: Any) -> str | dict[str, Any]:
    if isinstance(value, str | Mapping):
        return value if isinstance(value, str) else dict(value)
    raise CastError('a name or a dict')


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_positive(value: Any) -> bool:
    return _is_count(value) and value > 0


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_list(value: Any, is_valid: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and all(map(is_valid, value))


ARCHITECTURE: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    'smt': ('a number of hardware threads for each core, at least 1', _is_positive),
    'options': ('a list of constraints for the batch system', lambda value: _is_list(value, _is_text)),
    'blocked_cores': ('a list of indices', lambda value: _is_list(value, _is_count)),
    'blocked_gpus': ('a list of indices', lambda value: _is_list(value, _is_count)),
    'exclusive': ('true or false', _is_flag),
    'oversubscribe': ('true or false', _is_flag),
    'n_partitions': ('a number of partitions, at least 1', _is_positive),
    'torus': ('a list of extents, each at least 1', lambda value: _is_list(value, _is_positive)),
    'iface': ('the name of a network interface', _is_text),
    'gpu': ('the model of the GPUs', _is_text),
}
"""The known keys of `system_architecture`: the meaning of the value, and its check. Other keys are kept unchanged."""


class AccessSchema(Record):
    """An access schema of a platform: URLs for submitting jobs, transferring files, and interactive commands."""

    __slots__ = ()

    job_manager_endpoint: str = field(text, '')
    job_manager_hop: str = field(text, '')
    filesystem_endpoint: str = field(text, '')


class RaptorConfig(Record):
    """Heartbeats between RAPTOR masters and workers, in seconds, and the transport between the nodes of a worker."""

    __slots__ = ()

    hb_delay: float = field(seconds, 5)
    hb_timeout: float = field(seconds, 500)
    hb_frequency: float = field(seconds, 1000)
    transport: str = field(text, '')


class ResourceConfig(Record):
    """The definition of a platform. The endpoints at its top level are those of the chosen access schema.

    Args:
        from_dict: Values by field, or the label of the platform, as in `ResourceConfig(label, values)`.
        values: Values by field, after a label.
        fields: Further values.

    Raises:
        DescriptionError: A field is unknown, or its value has the wrong type.
    """

    __slots__ = ()

    def __init__(self, from_dict: str | Mapping[str, Any] | None = None, values: Mapping[str, Any] | None = None,
                 **fields: Any) -> None:
        if isinstance(from_dict, str):
            super().__init__(values, **fields, label=from_dict)
        elif values is None:
            super().__init__(from_dict, **fields)
        else:
            raise attribute_type_error(f'ResourceConfig takes a label before other values, not {from_dict!r}')

    label: str = field(text, '')
    description: str = field(text, '')
    notes: str = field(text, '')
    retired: bool = field(flag, False)

    schemas: dict[str, AccessSchema] = field(dict_of(record(AccessSchema)), dict)
    default_schema: str = field(text, '')
    job_manager_endpoint: str = field(text, '')
    job_manager_hop: str = field(text, '')
    filesystem_endpoint: str = field(text, '')
    default_remote_workdir: str = field(text, '')
    default_queue: str = field(text, '')
    queue_type: str = field(text, 'partition')
    default_project: str = field(text, '')
    job_size: str = field(text, 'cores')
    gpu_request: str = field(text, 'gpus')
    mandatory_args: list[str] = field(list_of(text), list)
    forward_tunnel_endpoint: str = field(text, '')
    network_interface: str = field(text, '')

    resource_manager: str = field(text, '')
    agent_config: str | dict[str, Any] = field(_text_or_dict, 'default')
    agent_scheduler: str = field(text, 'CONTINUOUS')
    agent_spawner: str = field(text, 'POPEN')
    agent_launch_method: str = field(text, '')
    launch_methods: dict[str, Any] = field(dict_of(anything), dict)

    pre_bootstrap_0: list[str] = field(list_of(text), list)
    pre_bootstrap_1: list[str] = field(list_of(text), list)
    shell: str = field(text, '')
    container_tool: str = field(text, '')
    rp_version: str = field(text, 'installed')
    virtenv: str = field(text, '')
    virtenv_mode: str = field(text, 'local')
    python_dist: str = field(text, 'default')
    python_interpreter: str = field(text, '')

    cores_per_node: int = field(count, 0)
    gpus_per_node: int = field(count, 0)
    mem_per_node: int = field(megabytes, 0)
    lfs_path_per_node: str = field(text, '')
    lfs_size_per_node: int = field(megabytes, 0)
    numa_domain_map: dict[str, dict[str, list[int]]] = field(dict_of(dict_of(list_of(count))), dict)
    n_partitions: int = field(count, 1)
    scattered: bool = field(flag, True)
    system_architecture: dict[str, Any] = field(dict_of(anything), dict)
    fake_resources: bool = field(flag, False)

    raptor: RaptorConfig = field(record(RaptorConfig), RaptorConfig)
    new_session_per_task: bool = field(flag, True)
    task_pre_launch: list[str] = field(list_of(text), list)
    task_post_launch: list[str] = field(list_of(text), list)
    task_pre_exec: list[str] = field(list_of(text), list)
    task_post_exec: list[str] = field(list_of(text), list)
    task_tmp: str = field(text, '')
    task_environment: dict[str, str] = field(dict_of(text), dict)

    def verify(self) -> None:
        """Raise a DescriptionError that names the field, unless the definition is valid."""
        super().verify()
        if not self.resource_manager:
            raise DescriptionError('resource_manager is required')
        if self.n_partitions < 1:
            raise DescriptionError(f'n_partitions must be at least 1, not {self.n_partitions}')
        for name, allowed in CHOICES.items():
            self._verify_choice(name, allowed)
        if self.default_schema:
            self._verify_choice('default_schema', tuple(self.schemas))
        self._verify_launch_methods()
        self._verify_shell()
        self._verify_choice('container_tool', ('', *TOOLS))
        if self.raptor.transport not in ('', TRANSPORT_MPI, TRANSPORT_ZMQ):
            raise DescriptionError(f'raptor.transport must be one of {TRANSPORT_MPI}, {TRANSPORT_ZMQ}, or empty, not '
                                   f'{self.raptor.transport!r}')
        self._verify_environment()
        for name, (meaning, is_valid) in ARCHITECTURE.items():
            value = self.system_architecture.get(name)
            if value is not None and not is_valid(value):
                raise DescriptionError(f'system_architecture.{name} must be {meaning}, not {value!r}')

    def _verify_choice(self, name: str, allowed: tuple[str, ...]) -> None:
        if self[name] not in allowed:
            raise DescriptionError(f'{name} must be one of {", ".join(allowed)}, not {self[name]!r}')

    def _verify_launch_methods(self) -> None:
        order = self.launch_methods.get('order')
        if not order or not isinstance(order, list) or not all(isinstance(name, str) for name in order):
            raise DescriptionError(f"launch_methods must have a list of names as 'order', not {order!r}")
        for name, options in self.launch_methods.items():
            if name != 'order' and not isinstance(options, Mapping):
                raise DescriptionError(f'launch_methods.{name} must be a dict, not {options!r}')

    def _verify_environment(self) -> None:
        for name, value in self.task_environment.items():
            if not name or '=' in name or '\0' in name + value:
                raise DescriptionError(f'task_environment must have names without "=" and no NUL characters, not '
                                       f'{name!r}: {value!r}')

    def _verify_shell(self) -> None:
        if self.shell and not (_SHELL.fullmatch(self.shell) and ('/' not in self.shell or os.path.isabs(self.shell))):
            raise DescriptionError(f'shell must be the name of a program or an absolute path, without white space, not '
                                   f'{self.shell!r}')

    def _cast(self, name: str, value: Any) -> Any:
        if name in _RENAMED:
            raise unknown_attribute(f'ResourceConfig has no field {name!r}: it is now {_RENAMED[name]!r}')
        return super()._cast(name, value)
