def spawn(
    argv: list[bytes],
    env: list[bytes],
    cwd: bytes,
    stdin_fd: int,
    stdout_fd: int,
    stderr_fd: int,
    pass_fds: tuple[int, ...] = (),
    path: bytes | None = None,
) -> tuple[int, int]: ...
