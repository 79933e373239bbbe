"""A TCP forwarder that stands for `ssh -L`: `tunnel.py PORT:TARGET_PORT ...` on the loopback interface.

Writes a line when it listens, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import sys


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until one side closes."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        return
    finally:
        writer.close()


async def forward(port: int, target: int) -> None:
    """Listen, and connect whoever comes to the target."""
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection('127.0.0.1', target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))

    await asyncio.start_server(connected, '127.0.0.1', port)


async def main() -> None:
    """Forward until standard input ends."""
    for pair in sys.argv[1:]:
        await forward(*map(int, pair.split(':')))
    print('ready', flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == '__main__':
    asyncio.run(main())
