from typing import Any, final

from typing_extensions import disjoint_base

from rp_agent.executor.processes.launch import Block

OWN: int
SPARE: int

@final
class Process:
    pid: int
    pidfd: int
    rank: int
    code: int
    run: Any
    failure: OSError | None
    user: float
    system: float
    switches: float
    peak: int
    memory: int
    read: int
    written: int
    sampled: bool
    leftovers: bool
    spared: bool

@disjoint_base
class LaunchLoop:
    fd: int
    most: int
    watched: dict[int, Process]
    @property
    def full(self) -> bool: ...
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, key: object, /) -> bool: ...
    def start(self, run: Any, rank: int, argv: list[bytes], env: Block | list[bytes], cwd: bytes,
              stdio: tuple[int, int, int], pass_fds: tuple[int, ...] = ..., path: bytes | None = ...,
              cpus: bytes | None = ..., memory: int = ...) -> Process: ...
    def follow(self, run: Any, rank: int, pid: int, pidfd: int) -> Process: ...
    def let_go(self, process: Process, run: Any, cpus: bytes | None) -> bool: ...
    def kill(self, process: Process) -> None: ...
    def forget(self, process: Process) -> None: ...
    def adopt(self) -> list[int]: ...
    def ended(self) -> list[Process]: ...
    def close(self) -> None: ...
