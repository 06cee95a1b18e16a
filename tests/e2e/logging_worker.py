"""The subscriber worker of the contact service, which writes down each entry that the store has confirmed.

``python -m tests.e2e.logging_worker LOG``. What was written outlives a SIGKILL.
"""

import asyncio
import os
import sys

from cosmos_outbox.inbox.entry import Entry, Stamp
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.worker import subscriber
from tests.support.use_cases import read_model_of, wire


async def _main(log: int) -> None:
    application = wire(os.environ)
    entries = read_model_of(application).inbox.entries
    put = entries.put

    async def logged(key: AggregateKey, entry: Entry[object], stamp: Stamp, *, over: str | None) -> str:
        version = await put(key, entry, stamp, over=over)  # type: ignore[arg-type]  # of the directory
        os.write(log, f"{key.id} {entry.last_sequence} {entry.last_event_id}\n".encode())
        return version

    object.__setattr__(entries, "put", logged)  # frozen, and a test looks inside all the same
    await subscriber.run(application, asyncio.Event())


if __name__ == "__main__":
    asyncio.run(_main(os.open(sys.argv[1], os.O_APPEND | os.O_CREAT | os.O_WRONLY)))
