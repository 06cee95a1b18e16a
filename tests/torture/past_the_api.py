"""Documents that were written past the API: each is delivered, parked or discarded as its kind demands, and once."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from tests.torture.history import Event, History, Operation
from tests.torture.violation import Violation


def unsequenced(history: History, operations: Mapping[str, Operation]) -> Iterator[Violation]:
    """An event without a sequence is delivered once, says that it has none, and has its place by the time."""
    delivered = {event.id: event for event in history.events()}
    by_contact: defaultdict[str, list[Event]] = defaultdict(list)
    for each in delivered.values():
        by_contact[each.contact].append(each)
    for document, written in history.unsequenced.items():
        event = delivered.get(document)
        stored_at = next((record.at for record in written if record.stored), None)
        if event is None:
            if stored_at is not None:
                yield Violation("lost event", f"{document}, which has no sequence", may_pass=True)
            continue
        told = (event.contact, event.body.get("id"), event.first.unsequenced, event.sequence)
        if told != (written[0].contact, document, True, -1):
            yield Violation("message and body differ", f"{event}, which has no sequence")
        for other in by_contact[event.contact]:
            operation = operations.get(other.operation)
            if operation and _is_out_of_place(event, other, operation, written[0].at, stored_at):
                yield Violation("order in time", f"{event}, which has no sequence, and {other}")


def _is_out_of_place(
    event: Event, other: Event, operation: Operation, began: float, stored_at: float | None
) -> bool:
    is_first = event.first.broker_number < other.first.broker_number
    if is_first:
        return any(answer.at < began for answer in operation.acknowledged)
    asked = [each.asked.at for each in operation.attempts if each.cause == other.cause]
    return stored_at is not None and any(at > stored_at for at in asked)


def parking(history: History) -> Iterator[Violation]:
    """Broken documents are parked, once; what is not behind one is not."""
    parked = Counter(str(item.get("eventId")) for item in history.parked)
    sick = {poison.partition for poison in history.poisons}
    documents = {poison.document for poison in history.poisons}
    for poison in history.poisons:
        if poison.stored and not parked[poison.document]:
            yield Violation("not parked", f"poison {poison.document} in {poison.partition}", may_pass=True)
        if poison.document in history.deliveries:
            yield Violation("poison delivered", poison.document)
    for document, times in parked.items():
        if times > 1 and document in documents:
            yield Violation("parked twice", document)
    for item in history.parked:
        if item.get("eventId") not in documents and item.get("contactId") not in sick:
            yield Violation("parked without need", f"{item.get('action')} of contact {item.get('contactId')}")
        if not item.get("reason"):
            yield Violation("parked without a reason", str(item.get("eventId")))
    for item in history.still_parked:
        yield Violation(
            "still parked", f"event {item.get('eventId')}, after discard and replay", may_pass=True
        )
    yield from _parked_again(history)


def _parked_again(history: History) -> Iterator[Violation]:
    """Nothing was in its way: all that had been was discarded, and the contact was free."""
    broken: defaultdict[str, set[str]] = defaultdict(set)
    for poison in history.poisons:
        broken[poison.partition].add(poison.document)
    last = {poison.partition: poison.at for poison in history.poisons}
    free: dict[str, datetime] = {}
    for each in history.free:
        if broken[each.contact] <= history.discarded and each.at > last.get(each.contact, each.at):
            free.setdefault(each.contact, each.time)
    for item in history.parked:
        contact = str(item.get("contactId"))
        if contact in free and datetime.fromisoformat(item["parkedAt"]) > free[contact]:
            yield Violation("parked again", f"{item.get('action')} of contact {contact}, which was free")


def notices(history: History, told: Sequence[Event]) -> Iterator[Violation]:
    """Subscribers get one notice for each discarded document of a contact, and none for anything else."""
    times = Counter(str(notice.body.get("discardedEventId")) for notice in told)
    parked = {str(item.get("eventId")) for item in history.parked}
    for poison in history.poisons:
        if poison.contact and poison.document in parked and not times[poison.document]:
            yield Violation("no notice", f"of {poison.document}, which was discarded", may_pass=True)
    documents = {poison.document for poison in history.poisons}
    for document, number in times.items():
        if document not in documents:
            yield Violation("invented notice", f"of {document}: nobody discarded it")
        if number > 1:
            yield Violation("two notices", f"of {document}")
