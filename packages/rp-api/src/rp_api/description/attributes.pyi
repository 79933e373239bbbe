"""The keywords of descriptions for type checkers, made from the schemas by `tests/test_attribute_types.py`."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from os import PathLike
from typing import Any, TypeAlias, TypedDict

_Text: TypeAlias = str | float | PathLike[str] | None
_Texts: TypeAlias = Iterable[str | float | PathLike[str]] | _Text
_Number: TypeAlias = float | str | None
_Time: TypeAlias = float | str | timedelta | None


class TaskAttributes(TypedDict, total=False):
    uid: _Text
    name: _Text
    mode: _Text
    executable: _Text
    arguments: _Texts
    info_pattern: _Text
    code: _Text
    function: Callable[..., Any] | _Text
    method: _Text
    args: Any
    kwargs: Mapping[str, Any] | None
    command: _Text
    literal_arguments: bool | int | str | None
    sandbox: _Text
    environment: Mapping[str, Any] | None
    named_env: _Text
    container: Any
    pre_launch: _Texts
    post_launch: _Texts
    pre_exec: Any
    pre_exec_sync: bool | int | str | None
    post_exec: Any
    stdout: _Text
    stderr: _Text
    input_staging: Any
    output_staging: Any
    stage_on_error: bool | int | str | None
    priority: _Number
    nice: _Number
    use_mpi: bool | int | str | None
    ranks: _Number
    ranks_per_node: _Number
    cores_per_rank: _Number
    gpus_per_rank: _Number
    threading_type: Any
    gpu_type: Any
    lfs_per_rank: _Number
    mem_per_rank: _Number
    slots: Any
    pilot: Any
    partition: _Number
    tags: Mapping[str, Any] | None
    raptor_id: Any
    raptor_class: _Text
    raptor_file: _Text
    transport: Any
    service: Any
    services: Any
    after: Any
    metadata: Mapping[str, Any] | None
    timeout: _Time
    startup_timeout: _Time
    restartable: bool | int | str | None
    forward_signals: Any
    cleanup: bool | int | str | None
    cache: Any
    retries: _Number
    retry_on: Any
    retry_delay: _Time
    retry_with: Any
    expect: Any
    cpu_process_type: Any
    gpu_threads: Any
    gpu_thread_type: Any
    cpu_processes: _Number
    cpu_threads: _Number
    cpu_thread_type: Any
    gpu_processes: _Number
    gpu_process_type: Any
    lfs_per_process: _Number
    mem_per_process: _Number
    scheduler: Any
    worker_class: _Text
    worker_file: _Text


class PilotAttributes(TypedDict, total=False):
    uid: _Text
    resource: _Text
    access_schema: _Text
    runtime: _Time
    job_name: _Text
    sandbox: _Text
    nodes: _Number
    backup_nodes: _Number
    cores: _Number
    gpus: _Number
    memory: _Number
    queue: _Text
    project: _Text
    app_comm: _Texts
    cleanup: bool | int | str | None
    exit_on_error: bool | int | str | None
    fail_if_unschedulable: bool | int | str | None
    requeue: bool | int | str | None
    input_staging: Any
    output_staging: _Texts
    prepare_env: Mapping[str, Any] | None
    services: Any
    enable_ep: bool | int | str | None
    reconfig_src: _Text
    partitions: Any
    _config: Mapping[str, Any] | None
