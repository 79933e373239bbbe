"""How it shows that a sub-agent on a node has ended, where one launcher has started those of many nodes.

Such a launcher ends with the last of them only, and nobody is connected to one that dies before it has connected. So
a script starts the sub-agent and waits for it, and its last line says that it has ended, and where. Launchers forward
what is written: that costs nothing as long as nobody dies, on however many nodes. The script itself ends with exit
code 0 in any case, as many launchers end all of their processes when one fails.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce
from shlex import join
from typing import IO

from rp_agent.resource_manager.system import short
from rp_api.loop.event_loop import Loop

_MARK = 'RP_SUB_AGENT_ENDED'

_READ = 65536

# a batch system that means the agent tells all processes: the sub-agent ignores it, and the script outlives it
_SCRIPT = """#!/bin/sh
# Starts the sub-agent of the node that this runs on, and tells the agent when it has ended.
trap : INT TERM
{command} 2>&1
echo "{mark} $? ${{SLURMD_NODENAME:-$(uname -n)}} {rank}"
"""

Ended = Callable[[int, int], object]


def script(command: Sequence[str], rank_variables: Sequence[str]) -> str:
    """The text of the script; one of these variables tells it its number, if there is any."""
    rank = reduce(lambda rest, name: f'${{{name}-{rest}}}', reversed(rank_variables), '')
    return _SCRIPT.format(command=join(command), mark=_MARK, rank=rank)


class Reader:
    """Reads the output of a launcher: `ended(index, code)` is told which node's has ended, all else goes to a file.

    These are the `names` of the nodes, in the order of the ranks. A name counts first, as batch systems may order ranks
    as they like; it says nothing if others have it, too, as pretended nodes do.
    """

    def __init__(self, loop: Loop, pipe: IO[bytes], path: str, names: Sequence[str], ended: Ended) -> None:
        self._loop = loop
        self._pipe = pipe
        self._ended = ended
        self._count = len(names)
        times = Counter(map(short, names))
        self._index = {short(name): index for index, name in enumerate(names) if times[short(name)] == 1}
        self._rest = b''
        self._file = open(path, 'ab', buffering=0)   # noqa: SIM115 - it is written to until it is closed
        os.set_blocking(pipe.fileno(), False)
        loop.add_fd(pipe.fileno(), self._read)

    def close(self) -> None:
        """Read what is left, and free everything."""
        if self._pipe.closed:
            return
        self._ended = lambda index, code: None
        while self._read():
            pass
        self._write(self._rest)
        self._loop.remove_fd(self._pipe.fileno())
        self._pipe.close()
        self._file.close()

    def _read(self) -> bool:
        """Whether there was anything to read."""
        try:
            data = os.read(self._pipe.fileno(), _READ)
        except BlockingIOError:
            return False
        if not data:   # all who could write have ended
            self._loop.remove_fd(self._pipe.fileno())
            return False
        *lines, self._rest = (self._rest + data).split(b'\n')
        for line in lines:
            self._take(line)
        return True

    def _take(self, line: bytes) -> None:
        """A line, the beginning of which may be what a sub-agent has said last, or what its launcher puts there."""
        said, mark, told = line.partition(_MARK.encode())
        if said or not mark:
            self._write(said + b'\n')
        code, name, rank, *_ = [*told.decode(errors='replace').split(), '', '', '']
        index = self._index.get(short(name), int(rank) if rank.isdecimal() else self._count)
        if code.isdecimal() and index < self._count:
            self._ended(index, int(code))

    def _write(self, data: bytes) -> None:
        with suppress(OSError):   # that the disk is full is no reason to end
            self._file.write(data)
