"""A database server for one run (nx-27017 speaks MongoDB's protocol), and the way to it, which can be disturbed."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from mongo_servers import Server, program

KIND = 'nx-27017'


def available() -> bool:
    """Whether the server is installed."""
    return program(KIND) is not None


class Database:
    """A server process on a port of its own; `url` leads to it through a relay."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._server = Server(KIND, directory)
        self._server.start()
        self.relay = Relay(self._server.url)
        self.url = f'mongodb://127.0.0.1:{self.relay.port}/matrix'

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._server.pid

    def start(self) -> None:
        """Start the server on the data that it left."""
        self._server.start()

    def kill(self) -> None:
        """End the server with SIGKILL."""
        self._server.kill()

    def close(self) -> None:
        """End server and relay."""
        self.relay.close()
        self.kill()


class Relay:
    """Passes on to a server what comes to its `port`, from a thread of its own; can hold it back, or hang up."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = target.hostname, target.port
        self._loop = asyncio.new_event_loop()
        self._flow = asyncio.Event()
        self._open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._flow.set()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, '127.0.0.1', 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name='relay', daemon=True)
        self._thread.start()

    def hold(self, on: bool) -> None:
        """Pass nothing on, or pass it on again."""
        self._loop.call_soon_threadsafe(self._flow.clear if on else self._flow.set)

    def cut(self, on: bool) -> None:
        """End all connections and accept none, or accept them again."""
        self._loop.call_soon_threadsafe(self._cut, on)

    def close(self) -> None:
        """End all connections and the thread."""
        self.cut(True)
        asyncio.run_coroutine_threadsafe(self._leave(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def _cut(self, on: bool) -> None:
        self._open = not on
        for writer in self._writers if on else ():
            writer.transport.abort()

    async def _leave(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            if not self._open:
                return writer.transport.abort()
            there, back = await asyncio.open_connection(*self._target)
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        writer.transport.abort()
        return None

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while data := await reader.read(1 << 16):
                await self._flow.wait()
                writer.write(data)
                await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
