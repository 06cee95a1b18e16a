"""The mailing list: one entry a person, in a file of this team's own. It reads no store of the publisher's.

What an event does not have is asked of the publisher's HTTP API. ``blind`` is the same list where not even that is
allowed: an event that is missing is then waited for, until the publisher publishes it again.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from cosmos_outbox import (
    After,
    EntrySchema,
    Event,
    HttpApi,
    Named,
    Names,
    NoSource,
    Service,
    TolerantReader,
)
from examples.subscriber.sqlite_store import SqliteFile


class Recipient(TolerantReader):
    """Whom the letters go to: all that this team knows of a person."""

    name: str
    email: str


FORM = EntrySchema(Recipient, search={"email": lambda entry: entry.email.casefold()}, sorted_by=["email"])


def recipient(person: Mapping[str, Any]) -> Recipient:
    """The entry of a person, as the publisher's API shows one."""
    return Recipient.model_validate(person)


def first(event: Event) -> Recipient | None:
    """The entry that a person's first event has; None: it has not."""
    try:
        return Recipient.model_validate(event.data)
    except ValidationError:
        return None


def project(entry: Recipient, event: Event) -> After[Recipient]:
    """The entry after an event. What this list does not need leaves the entry as it is."""
    match event.action:
        case "PersonRenamedEvent":
            return After(entry.model_copy(update={"name": event.data["name"]}))
        case "PersonEmailChangedEvent":
            return After(entry.model_copy(update={"email": event.data["email"]}))
        case "PersonDeletedEvent":
            return After(None)
    return After(entry)


STORE = SqliteFile(Named("MAILING_DATABASE", "mailing-list.db"))
PEOPLE = HttpApi(Named("PEOPLE_API", "http://127.0.0.1:8000/people"), answers_newest=True)

service = Service("mailing", publishes=False, store=STORE, names=Names(topic="people-events"))
LIST = service.read_model(
    "mailing-list", of="person", form=FORM, project=project, state_of=recipient, first=first, source=PEOPLE
)

blind = Service("mailing", publishes=False, store=STORE, names=Names(topic="people-events"))
BLIND_LIST = blind.read_model(
    "mailing-list", of="person", form=FORM, project=project, first=first, source=NoSource()
)
