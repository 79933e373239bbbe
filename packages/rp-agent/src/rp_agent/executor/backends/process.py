"""Processes of instances and runners, with pipes for lines of output and for input.

They die with the agent; when one ends, the rest of its process group is killed.
"""

from __future__ import annotations

import errno
import os
import select
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from rp_agent.executor.backends.launcher import Startup
from rp_agent.executor.processes.launchloop import LaunchLoop, Process
from rp_agent.lookup import LaunchRefused, find_program
from rp_api.loop.event_loop import Loop
from rp_api.system import private
from rp_api.system.signals import name_of

_TAIL = 20
"""Number of last lines of output that are kept for the report of the end."""

_LONGEST_LINE = 65536
"""Maximum number of bytes of a line; a longer one is split."""

TakeLine = Callable[[str], object]
Ended = Callable[[str], object]


class InstanceProcess:
    """A running process; `take_line(line)` is called with each line of its standard output and error."""

    __slots__ = ('_buffer', '_input', '_loop', '_output', '_take_line', 'ended', 'lines', 'process')

    def __init__(self, loop: Loop, output: int, input_: int, take_line: TakeLine, ended: Ended) -> None:
        self._loop = loop
        self._output = output
        self._input = PipeWriter(loop, input_)
        self._take_line = take_line
        self._buffer = b''
        self.ended = ended
        self.lines: deque[str] = deque(maxlen=_TAIL)
        self.process: Process | None = None
        loop.add_fd(output, self.read)

    def read(self) -> None:
        """Read the output that has arrived."""
        while self._output >= 0:
            try:
                data = os.read(self._output, 65536)
            except BlockingIOError:
                return
            if not data:
                self._close_output()
                return
            *lines, self._buffer = (self._buffer + data).split(b'\n')
            if len(self._buffer) > _LONGEST_LINE:
                lines, self._buffer = [*lines, self._buffer], b''
            for line in lines:
                text = line.decode(errors='replace').strip()
                self.lines.append(text)
                self._take_line(text)

    def write(self, data: bytes) -> None:
        """Write to its standard input, now or when the pipe has room."""
        self._input.write(data)

    def signal(self, number: int) -> None:
        """Signal the process group, if it still exists."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Close both pipes."""
        self._close_output()
        self.close_input()

    def close_input(self) -> None:
        """Close the pipe to its standard input, which ends some programs."""
        self._input.close()

    def _close_output(self) -> None:
        if self._output >= 0:
            self._loop.remove_fd(self._output)
            os.close(self._output)
            self._output = -1


class Processes:
    """Starts processes in a directory, with an environment; `close` kills those that still run."""

    def __init__(self, loop: Loop, directory: str, environment: Mapping[str, str]) -> None:
        self._loop = loop
        self._directory = directory
        self._environment = dict(environment)
        self._launched = LaunchLoop()
        self._running: set[InstanceProcess] = set()
        loop.add_fd(self._launched.fd, self._some_ended)

    def start(self, startup: Startup, take_line: TakeLine, ended: Ended, *,
              with_input: bool = False, pass_fds: tuple[int, ...] = ()) -> InstanceProcess:
        """Start a process, with a pipe to its standard input if `with_input`; raise OSError if it cannot be started.

        `pass_fds` become its descriptors 3, 4, ... `ended(how)` is called when it has ended, with its exit code and the
        last lines of its output.
        """
        environment = self._environment | dict(startup.environment)
        try:
            path = find_program(startup.argv[0], environment.get('PATH', os.defpath), self._directory)
        except LaunchRefused as error:
            raise OSError(errno.ENOENT, str(error)) from error
        for name, text in startup.files.items():
            private.write_file(os.path.join(self._directory, name), text.encode())   # it may contain keys
        reading, writing = os.pipe()
        stdin, to_stdin = os.pipe() if with_input else (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), -1)
        os.set_blocking(reading, False)
        found = InstanceProcess(self._loop, reading, to_stdin, take_line, ended)
        try:
            found.process = self._launched.start(
                found, 0, [os.fsencode(word) for word in startup.argv],
                [os.fsencode(f'{name}={value}') for name, value in environment.items()],
                os.fsencode(self._directory), (stdin, writing, writing), pass_fds, os.fsencode(path))
        except OSError:
            found.close()
            raise
        finally:
            os.close(writing)
            os.close(stdin)
        self._running.add(found)
        return found

    def close(self) -> None:
        """Kill all processes."""
        if self._launched.fd < 0:
            return
        for running in self._running:
            running.close()
            if running.process is not None:
                self._launched.kill(running.process)
                running.process = None
        self._loop.remove_fd(self._launched.fd)
        self._launched.close()

    def _some_ended(self) -> None:
        for process in self._launched.ended():
            running: InstanceProcess = process.run
            running.process = None
            running.read()   # the last output
            running.close()
            self._running.discard(running)
            running.ended(_how(process, running.lines))


def _how(process: Process, lines: Iterable[str]) -> str:
    """Describe the end of a process, with its last lines of output."""
    if process.failure is not None:
        return f'could not be started: {process.failure.strerror} ({process.failure.filename})'
    code = process.code
    how = f'was killed by {name_of(-code)}' if code < 0 else f'ended with exit code {code}'
    last = '\n'.join(line for line in lines if line)
    return how + (f', its last lines:\n{last}' if last else '')


class PipeWriter:
    """The write end of a pipe, which it owns; a negative descriptor is a closed pipe."""

    __slots__ = ('_descriptor', '_loop', '_room', '_unsent')

    def __init__(self, loop: Loop, descriptor: int) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._unsent = bytearray()
        self._room: select.epoll | None = None
        if descriptor >= 0:
            os.set_blocking(descriptor, False)

    def write(self, data: bytes) -> None:
        """Write data, now or when the pipe has room; it is lost if the pipe is closed or the reader has ended."""
        if self._descriptor >= 0:
            self._unsent += data
            if self._room is None:
                self._write()

    def close(self) -> None:
        """Close the pipe, and drop buffered data."""
        self._stop_waiting_for_room()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> None:
        try:
            while self._unsent:
                with memoryview(self._unsent) as rest:
                    written = os.write(self._descriptor, rest)
                del self._unsent[:written]
        except BlockingIOError:
            if self._room is None:   # an epoll descriptor, because the loop watches descriptors only for reading
                self._room = select.epoll()
                self._room.register(self._descriptor, select.EPOLLOUT)
                self._loop.add_fd(self._room.fileno(), self._write)
            return
        except BrokenPipeError:   # the owner of the reader reports its end
            self._unsent.clear()
        self._stop_waiting_for_room()

    def _stop_waiting_for_room(self) -> None:
        if self._room is not None:
            self._loop.remove_fd(self._room.fileno())
            self._room.close()
            self._room = None
