"""Detection of the end of a sub-agent on a node, when one launcher has started those of many nodes.

Such a launcher ends only with the last sub-agent, and a sub-agent that dies before it is connected sends no message.
Therefore a script starts each sub-agent, waits for it, and writes a last line with its exit code and node, which the
launcher forwards. This costs nothing while no sub-agent dies, on any number of nodes. The script ends with exit code 0,
as many launchers end all of their processes when one fails.
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

# a batch system that signals the agent signals all processes: the sub-agent ignores it, and the script survives it
_SCRIPT = """#!/bin/sh
# Starts the sub-agent of the node that this runs on, and tells the agent when it has ended.
trap : INT TERM HUP USR1 USR2 ALRM XCPU
{command} 2>&1
echo "{mark} $? ${{SLURMD_NODENAME:-$(uname -n)}} {rank}"
"""

Ended = Callable[[int, int], object]


def script(command: Sequence[str], rank_variables: Sequence[str]) -> str:
    """Return the text of the script, which reads its rank from the first of these variables that is set."""
    rank = reduce(lambda rest, name: f'${{{name}-{rest}}}', reversed(rank_variables), '')
    return _SCRIPT.format(command=join(command), mark=_MARK, rank=rank)


class Reader:
    """The reader of a launcher's output: calls `ended(index, code)` for ends of sub-agents, writes the rest to a file.

    `names` are those of the nodes, in the order of the ranks. A name takes precedence over a rank, as batch systems may
    order ranks in another way. A name that several nodes have, as simulated nodes do, is ignored.
    """

    def __init__(self, loop: Loop, pipe: IO[bytes], path: str, names: Sequence[str], ended: Ended) -> None:
        self._loop = loop
        self._pipe = pipe
        self._ended = ended
        self._count = len(names)
        times = Counter(map(short, names))
        self._index = {short(name): index for index, name in enumerate(names) if times[short(name)] == 1}
        self._rest = b''
        self._file = open(path, 'ab', buffering=0)   # noqa: SIM115 - open until `close`
        os.set_blocking(pipe.fileno(), False)
        loop.add_fd(pipe.fileno(), self._read)

    def close(self) -> None:
        """Read the rest of the output, and release all resources."""
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
        """Read available output; return whether there was any."""
        try:
            data = os.read(self._pipe.fileno(), _READ)
        except BlockingIOError:
            return False
        if not data:   # all writers have ended
            self._loop.remove_fd(self._pipe.fileno())
            return False
        *lines, self._rest = (self._rest + data).split(b'\n')
        for line in lines:
            self._take(line)
        return True

    def _take(self, line: bytes) -> None:
        """Handle a line; the mark may follow the last output of a sub-agent or a prefix of the launcher."""
        said, mark, told = line.partition(_MARK.encode())
        if said or not mark:
            self._write(said + b'\n')
        code, name, rank, *_ = [*told.decode(errors='replace').split(), '', '', '']
        index = self._index.get(short(name), int(rank) if rank.isdecimal() else self._count)
        if code.isdecimal() and index < self._count:
            self._ended(index, int(code))

    def _write(self, data: bytes) -> None:
        with suppress(OSError):   # a full disk does not end the agent
            self._file.write(data)
