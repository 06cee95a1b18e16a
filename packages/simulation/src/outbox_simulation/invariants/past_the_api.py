"""Checks that documents written past the service are delivered, parked or discarded by their kind, and once."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from math import inf

from outbox_simulation.invariants.committed import discarded_before
from outbox_simulation.invariants.history import History, Operation, SeenEvent
from outbox_simulation.invariants.violation import Violation

REFUSED = "refused:"
"""The prefix of an event's id that the broker refused: it blocks as a broken document does."""


def unsequenced(history: History, operations: Mapping[str, Operation]) -> Iterator[Violation]:
    """Checks that an event without a sequence is delivered once, marked as such, and placed by its time.

    A discarded one is excused by its skip marker, and so is one that expired.
    """
    delivered = {event.id: event for event in history.events()}
    skip_markers = history.skip_markers()
    excused = history.expired | (skip_markers.keys() & history.discarding)
    by_aggregate: defaultdict[str, list[SeenEvent]] = defaultdict(list)
    for each in delivered.values():
        by_aggregate[each.aggregate].append(each)
    for document, written in history.unsequenced.items():
        event = delivered.get(document)
        stored_at = next((record.at for record in written if record.stored), None)
        if event is None:
            if stored_at is not None and document not in excused:
                yield Violation("lost event", f"{document}, which has no sequence", may_pass=True)
            continue
        facts = (event.aggregate, event.body.get("id"), event.first.unsequenced, event.sequence)
        if facts != (written[0].aggregate, document, True, -1):
            yield Violation("message and body differ", f"{event}, which has no sequence")
        yield from discarded_before(event, skip_markers.get(document, ()), history)
        for other in by_aggregate[event.aggregate]:
            operation = operations.get(other.operation)
            if operation and _is_out_of_place(event, other, operation, written[0].at, stored_at):
                yield Violation("order in time", f"{event}, which has no sequence, and {other}")


def _is_out_of_place(
    event: SeenEvent, other: SeenEvent, operation: Operation, began: float, stored_at: float | None
) -> bool:
    is_first = event.first.broker_number < other.first.broker_number
    if is_first:
        return any(answer.at < began for answer in operation.acknowledged)
    asked = [each.asked.at for each in operation.attempts if each.cause == other.cause]
    return stored_at is not None and any(at > stored_at for at in asked)


def parking(history: History) -> Iterator[Violation]:
    """Checks that broken documents are parked, once; a document that is not behind one is not."""
    parked = Counter(item.event for item in history.parked)
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
    refused = _refused(history)
    for item in history.parked:
        first = refused.get(item.aggregate or "")
        before = first is not None and item.event in history.stored and _number(history, item.event) < first
        again = item.event in history.deliveries and history.deliveries[item.event][0].at < item.at
        if item.event not in documents and (item.aggregate not in sick or (before and not again)):
            yield Violation("parked without need", f"{item.action} of {item.aggregate}")
        if not item.reason:
            yield Violation("parked without a reason", item.event)
    for item in history.still_parked:
        yield Violation("still parked", f"event {item.event}, after discard and replay", may_pass=True)
    yield from _parked_again(history)


def _refused(history: History) -> dict[str, float]:
    """Returns, by aggregate, the first event that the broker refused, if nothing else ever blocked the aggregate.

    Nothing before it is parked, unless it was sent and comes again: a later event breaks the order.
    """
    first: dict[str, float] = {}
    others: set[str] = set()
    for poison in history.poisons:
        event = poison.document.removeprefix(REFUSED)
        if event == poison.document or event not in history.stored:
            others.add(poison.partition)
        else:
            number = _number(history, event)
            first[poison.partition] = min(number, first.get(poison.partition, number))
    return {aggregate: number for aggregate, number in first.items() if aggregate not in others}


def _number(history: History, event: str) -> float:
    number = history.stored[event].sequence
    return number if number >= 0 else float("inf")


def _is_dealt_with(document: str, history: History, by: float) -> bool:
    """Whether it was discarded by then, or taken after a refusal. The relay may reach a document long after."""
    event = document.removeprefix(REFUSED)
    if event != document and event in history.deliveries and history.deliveries[event][0].at <= by:
        return True
    return history.discarded.get(event, inf) <= by


def _parked_again(history: History) -> Iterator[Violation]:
    """Checks that nothing is parked once all blocking events were discarded or sent and the aggregate was free."""
    broken: defaultdict[str, set[str]] = defaultdict(set)
    for poison in history.poisons:
        broken[poison.partition].add(poison.document)
    last = {poison.partition: poison.at for poison in history.poisons}
    free: dict[str, datetime] = {}
    for each in history.free:
        settled = all(_is_dealt_with(document, history, each.at) for document in broken[each.aggregate])
        if settled and each.at > last.get(each.aggregate, each.at):
            free.setdefault(each.aggregate, each.time)
    for item in history.parked:
        aggregate = item.aggregate or ""
        if aggregate in free and item.parked_at > free[aggregate]:
            yield Violation("parked again", f"{item.action} of {aggregate}, which was free")


def skip_markers(history: History) -> Iterator[Violation]:
    """Checks that subscribers get one skip marker for each discarded document of an aggregate, and no other."""
    times = {document: len(facts) for document, facts in history.skip_markers().items()}
    parked = {item.event for item in history.parked}
    for poison in history.poisons:
        if poison.aggregate and poison.document in parked and poison.document not in times:
            yield Violation("no skip marker", f"of {poison.document}, which was discarded", may_pass=True)
    documents = {poison.document for poison in history.poisons} | history.discarding
    for document, number in times.items():
        if document not in documents:
            yield Violation("invented skip marker", f"of {document}: nobody asked for that")
        if number > 1:
            yield Violation("two skip markers", f"of {document}")
