"""Simulates network latency: a TCP proxy that passes on every byte in order, some milliseconds later.

``python -m tools.benchmarks.proxy TARGET_PORT MILLISECONDS_EACH_WAY`` prints its own port.
"""

import asyncio
import contextlib
import sys

_CHUNK = 262_144


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def take() -> None:
        while data := await reader.read(_CHUNK):
            waiting.put_nowait((loop.time() + seconds, data))
        waiting.put_nowait((loop.time() + seconds, b""))

    taking = asyncio.create_task(take())
    try:
        while True:
            due, data = await waiting.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                break
            writer.write(data)
            await writer.drain()
    finally:
        taking.cancel()
        writer.close()


async def _serve(target: int, seconds: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(
                _pass_on(reader, there_writer, seconds), _pass_on(there_reader, writer, seconds)
            )

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2]) / 1000))
