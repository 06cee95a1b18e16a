"""Receives until it is stopped: ``python -m examples.subscriber``; with ``--blind`` it asks nobody."""

import asyncio
import logging
import signal
import sys

from cosmos_outbox import running
from examples.subscriber.service import blind, service


async def main(*, asks_nobody: bool) -> None:
    """Work until SIGTERM or Ctrl-C; then let the messages in hand end."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(blind if asks_nobody else service):
        await stop.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("azure").setLevel(logging.WARNING)
    asyncio.run(main(asks_nobody="--blind" in sys.argv))
