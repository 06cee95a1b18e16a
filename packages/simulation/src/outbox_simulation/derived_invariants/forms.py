"""Checks that today's code reads what earlier releases stored: a file beside the tests has each stored schema.

There is one file for each shape of a document, named by its type and its shape. A new shape is added; an existing file
is never written again, since documents of it may be stored for good.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmos_outbox.composition.declarations import ReadModelDeclaration
from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE, EventReader, aggregate_from_item
from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.inbox.entries import TYPE as ENTRY_TYPE
from cosmos_outbox.cosmos.store.partition_key import at
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.service import Service
from outbox_simulation.invariants.violation import Violation

RULE = "stored form"
_OF_THE_STORE = {"_rid", "_self", "_attachments", "_lsn"}


@dataclass(frozen=True)
class Form:
    """A document, with the setting that names its container: containers have other names elsewhere."""

    container: str
    document: dict[str, Any]

    @property
    def name(self) -> str:
        """The file's name: the same only for documents of one shape."""
        detail = self.document.get("data", self.document)  # the rest is the library's own
        shape = hashlib.sha256("\n".join(sorted(set(_paths(detail)))).encode()).hexdigest()[:8]
        of = self.document.get("type")
        if of == EVENT_TYPE:
            of = self.document["data"]["action"]
        if of == ENTRY_TYPE:
            of = self.container.lower().replace("_", "-")
        return f"{of}-{shape}"


def write(folder: Path, forms: Iterable[Form]) -> list[Path]:
    """Adds a file for each new shape."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for form in forms:
        path = folder / f"{form.name}.json"
        if not path.exists():
            kept = {name: value for name, value in form.document.items() if name not in _OF_THE_STORE}
            text = json.dumps({"container": form.container, "document": kept}, indent=2, ensure_ascii=False)
            path.write_text(f"{text}\n")
            written.append(path)
    return written


def unread(folder: Path, service: Service) -> list[Violation]:
    """Returns the documents that today's code does not read. A folder without any is a violation too."""
    files = {file.name: Form(**json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))}
    if not files:
        detail = f"{folder} has none: run the test once with --simulate-write-forms, and commit the folder"
        return [Violation(RULE, detail)]
    reader = _Reader(service, [*files.values()])
    return [
        Violation(RULE, f"{name}: {each}") for name, form in files.items() for each in reader.troubles(form)
    ]


@dataclass(frozen=True)
class _Reader:
    service: Service
    forms: list[Form]

    def troubles(self, form: Form) -> list[str]:
        """Returns why the document cannot be used."""
        kind = form.document.get("type")
        read = {EVENT_TYPE: self._event, ENTRY_TYPE: self._entry}.get(str(kind), self._aggregate)
        try:
            return [*read(form)]
        except Exception as error:  # noqa: BLE001 - the user's models may raise anything
            return [f"it cannot be read: {error!r}"]

    def _aggregate(self, form: Form) -> Iterator[str]:
        kinds = {each.aggregate_type: each for each in self.service.aggregates}
        kind = kinds.get(str(form.document.get("type")))
        if kind is not None:
            aggregate_from_item(kind, form.document)
        read = [self._state(each, form) for each in self._read_models()]
        if kind is None and not any(read):
            yield f"nothing of the service is a {form.document.get('type')}: never change the name of a type"

    def _event(self, form: Form) -> Iterator[str]:
        read = EventReader(self.service.wire_names.untyped, self.service.paths).event(form.document)
        if not isinstance(read, OutboxEvent):
            yield f"it would be parked: {getattr(read, 'reason', 'it is no event')}"
            return
        event = Event(
            read.id,
            read.aggregate,
            read.action,
            read.sequence,
            read.created_at,
            read.data,
            read.schema_version,
        )
        for each in self._read_models():
            states = [state for form in self.forms if (state := self._state(each, form)) is not None]
            if each.aggregate_type == read.aggregate.type and states:
                each.project(states[0], event)

    def _entry(self, form: Form) -> Iterator[str]:
        for each in self._read_models():
            is_of = each.container.setting == form.container and each.form.is_of(form.document)
            if not is_of or form.document["deleted"]:
                continue
            state = each.form.read(form.document)
            if state is None or each.form.texts(state) != form.document["search"]:
                yield f"{each.name} has another form by now: raise the version of its EntrySchema"

    def _read_models(self) -> Iterator[ReadModelDeclaration[Any]]:
        for each in self.service.subscribers:
            if isinstance(each, ReadModelDeclaration):
                yield each

    def _state(self, of: ReadModelDeclaration[Any], form: Form) -> Any:
        """Returns a read model's state of a stored aggregate; None: another type's, or deleted."""
        kind = of.documents or SourceDocuments.of_library(of.aggregate_type)
        name = at(form.document, kind.id)
        if (
            not isinstance(name, str)
            or not kind.is_of(form.document, name)
            or at(form.document, kind.deleted)
        ):
            return None
        return of.state_of(form.document["data"] if of.documents is None else form.document)


def _paths(document: Any, before: str = "") -> Iterator[str]:
    """Yields each path of a document, with the type of its value; a list counts as all of its items."""
    if isinstance(document, Mapping):
        for name, value in document.items():
            if before or name not in _OF_THE_STORE:
                yield from _paths(value, f"{before}/{name}")
    elif isinstance(document, list):
        for value in document:
            yield from _paths(value, f"{before}/[]")
    else:
        yield f"{before} {type(document).__name__}"
