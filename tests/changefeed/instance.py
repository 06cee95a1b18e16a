"""One instance as a process of its own: ``python -m tests.changefeed.instance endpoint database name file``.

The process appends a line to the file for each item that it has handled, and runs until somebody ends it.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from azure.cosmos.aio import CosmosClient

from cosmos_changefeed import ChangeFeedContext, ChangeFeedProcessor
from devstack.settings import COSMOS_KEY
from tests.changefeed.support import SHORT_LEASES


async def main(endpoint: str, database_name: str, name: str, file: Path) -> None:
    async def handle(changes: Sequence[Mapping[str, Any]], context: ChangeFeedContext) -> None:
        await asyncio.sleep(0.01)
        lines = [
            {
                "instance": name,
                "lease": context.lease_token,
                "key": item["partitionKey"],
                "sequence": item["sequence"],
            }
            for item in changes
        ]
        # One write, so that the order of lines in the file is the order of batches, whoever handled them.
        with file.open("a") as output:
            output.write("".join(f"{json.dumps(line)}\n" for line in lines))

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with CosmosClient(endpoint, COSMOS_KEY) as client:
        database = client.get_database_client(database_name)
        async with ChangeFeedProcessor(
            database.get_container_client("items"),
            database.get_container_client("leases"),
            handle,
            instance_name=name,
            options=SHORT_LEASES,
        ):
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
