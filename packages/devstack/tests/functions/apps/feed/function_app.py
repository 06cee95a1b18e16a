"""A function on the change feed that fails as often as FAILURES says, and hangs after its work when HANG is set.

It takes PAUSE seconds. RETRY is none, finite (two retries) or infinite.
"""

import asyncio
import os
from collections.abc import Callable
from itertools import count
from typing import Any

import azure.functions as func

from functions.apps.recording import record

app = func.FunctionApp()
_calls = count(1)


def _with_retry(function: Any) -> Any:
    counts = {"finite": "2", "infinite": "-1"}
    if os.environ["RETRY"] == "none":
        return function
    decorate: Callable[[Any], Any] = app.retry(
        strategy="fixed_delay", max_retry_count=counts[os.environ["RETRY"]], delay_interval="00:00:00"
    )
    return decorate(function)


@_with_retry
@app.cosmos_db_trigger(
    arg_name="documents",
    connection="COSMOS",
    database_name="%DATABASE%",
    container_name="items",
    lease_container_name="leases",
    lease_container_prefix="app-",
    create_lease_container_if_not_exists=True,
    start_from_beginning=True,  # type: ignore[arg-type]  # the library's own annotation is wrong
    feed_poll_delay=20,
    lease_acquire_interval=100,
    lease_expiration_interval=1500,
    lease_renew_interval=300,
    max_items_per_invocation=2,
)
async def feed(documents: func.DocumentList, context: func.Context) -> None:
    call = next(_calls)
    record(
        ids=[document["id"] for document in documents],
        texts=[document.get("text") for document in documents],
        lsns=[document["_lsn"] for document in documents],
        kind=type(documents[0]).__name__,
        pid=os.getpid(),
        retry=context.retry_context.retry_count,
        max_retry=context.retry_context.max_retry_count,
        exception=context.retry_context.exception.message,
    )
    ids = [document["id"] for document in documents]
    # What a failed attempt has done to its documents must not reach the next one.
    documents.clear()
    if call <= int(os.environ["FAILURES"]):
        raise ValueError(f"failure {call}")
    if os.environ.get("HANG"):
        await asyncio.Event().wait()
    if pause := float(os.environ.get("PAUSE", "0")):
        await asyncio.sleep(pause)
        record(ended=ids)
