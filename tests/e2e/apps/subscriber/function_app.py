"""A function app of a team that subscribes: guests in a file, and a letter to each, which is a line of another file."""

import json
import os
from pathlib import Path

from cosmos_outbox.functions.function_app import app as app_of
from cosmos_outbox.inbox.entry import After, EntrySchema
from cosmos_outbox.inbox.message import Event, TolerantReader
from cosmos_outbox.inbox.ports import NoSource
from cosmos_outbox.service import Service
from cosmos_outbox.settings.names import Named
from examples.subscriber.sqlite_store import SqliteFile


class Guest(TolerantReader):
    """What is kept of a guest."""

    name: str


def guest(event: Event) -> Guest:
    """As the event has it."""
    return Guest.model_validate(event.data)


def project(state: Guest, event: Event) -> After[Guest]:
    """The guest after an event."""
    return After(guest(event))


service = Service("hotel", publishes=False, store=SqliteFile(Named("HOTEL_DATABASE")))
service.read_model(
    "guests",
    of="guest",
    form=EntrySchema(Guest, search={}, sorted_by=[]),
    project=project,
    first=guest,
    source=NoSource(),
)


@service.effect("letters", of="guest")
async def letter(event: Event) -> None:
    """Write it."""
    _write(json.dumps([event.aggregate.id, event.sequence]))


def _write(line: str) -> None:
    with Path(os.environ["LETTERS"]).open("a") as letters:
        letters.write(f"{line}\n")


app = app_of(service)
