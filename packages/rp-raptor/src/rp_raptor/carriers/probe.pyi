from typing import final

@final
class Probe:
    def __init__(self, iprobe: int, comm: int, status: int, source: int, tag: int,
                 sockets: int) -> None: ...
    def wait(self, fd: int, busy: bool, pieces: bool) -> bool: ...
