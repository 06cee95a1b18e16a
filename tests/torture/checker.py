"""The promises of the service, each as a rule over the clients' requests and answers and the subscriber's messages.

The checker imports nothing of the service: shared code would share its mistakes. A violation with ``may_pass`` can
still end by waiting, such as an event that has not arrived yet; every other violation is final.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.torture.entries import entries
from tests.torture.history import (
    CREATED,
    DELETED,
    NOTICE,
    UPDATED,
    Attempt,
    Event,
    History,
    Operation,
    value_of,
    values,
)
from tests.torture.past_the_api import notices, parking, unsequenced
from tests.torture.refusals import false_refusals, refused_repetitions
from tests.torture.violation import Violation

EXPECTED_STATUSES = {200, 201, 204, 404, 409, 410, 412, 422, 429, 503}
"""What a well-formed request may be answered with; anything else, a bare 500 above all, is a violation."""


def check(history: History) -> list[Violation]:
    """Everything that is wrong with a run; nothing else than the journals is looked at."""
    operations = history.operations()
    delivered = history.events()
    told = [event for event in delivered if event.action == NOTICE]
    events = [event for event in delivered if event.action != NOTICE and event.id not in history.unsequenced]
    by_operation: defaultdict[str, list[Event]] = defaultdict(list)
    by_contact: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_operation[event.operation].append(event)
        by_contact[event.contact].append(event)
    return [
        *_answers(operations.values()),
        *false_refusals(operations.values()),
        *refused_repetitions(operations.values()),
        *_each_event(events, operations),
        *_deliveries(delivered, history.completed),
        *(found for each in operations.values() for found in _effects(each, by_operation[each.name])),
        *(found for contact, each in by_contact.items() for found in _order(contact, each, operations)),
        *_final_state(history.found, by_contact),
        *entries(history.shown, by_contact),
        *unsequenced(history, operations),
        *parking(history),
        *notices(history, told),
    ]


def _answers(operations: Iterable[Operation]) -> Iterator[Violation]:
    for operation in operations:
        for attempt in operation.attempts:
            yield from _answer(operation, attempt)
        first_answers = [answer for answer in operation.acknowledged if not answer.replayed]
        if len(first_answers) > 1:
            yield Violation("acknowledged twice", f"{operation.name} got two first answers")
        if len(operation.contacts) > 1:
            yield Violation("doubled contact", f"{operation.name} was told of {sorted(operation.contacts)}")
        if operation.asked.reuses_key and operation.acknowledged:
            yield Violation("reused key", f"{operation.name} was acknowledged in spite of its used key")


def _answer(operation: Operation, attempt: Attempt) -> Iterator[Violation]:
    answer = attempt.answer
    if answer is None:
        return
    if answer.status is not None and answer.status not in EXPECTED_STATUSES:
        yield Violation("unexpected answer", f"{attempt.cause} got {answer.status}")
    if answer.outcome != "acknowledged" or operation.call == "delete":
        return
    shown = values(answer.body or {})
    for name in attempt.asked.properties:
        if shown.get(name) != value_of(operation.name, name):
            yield Violation("wrong answer", f"{attempt.cause} set its {name} and was shown {shown.get(name)}")


def _each_event(events: Iterable[Event], operations: Mapping[str, Operation]) -> Iterator[Violation]:
    attempts = {attempt.cause: each for each in operations.values() for attempt in each.attempts}
    outcomes = {attempt.cause: attempt.outcome for each in attempts.values() for attempt in each.attempts}
    for event in events:
        operation = attempts.get(event.cause)
        if operation is None or event.action not in operation.actions:
            yield Violation("invented event", f"{event}: nobody asked for it")
            continue
        if outcomes[event.cause] == "refused":
            yield Violation("refused, and done", f"{event}: its request was refused")
        if operation.contacts and event.contact not in operation.contacts:
            yield Violation("wrong contact", f"{event}: {operation.name} was about another one")
        yield from _content(event, operation)


def _content(event: Event, operation: Operation) -> Iterator[Violation]:
    body = event.body
    told = (body.get("id"), body.get("contactId"), body.get("action"), body.get("sequence"))
    if told != (event.id, event.contact, event.action, event.sequence):
        yield Violation("message and body differ", str(event))
    carried = values(body.get("contact") or {}) if event.action == CREATED else values(body)
    for name in operation.asked.properties:
        if event.action in (CREATED, UPDATED[name]) and carried.get(name) != value_of(operation.name, name):
            yield Violation("wrong content", f"{event}: its {name} is {carried.get(name)}")


def _deliveries(events: Iterable[Event], completed: Mapping[int, float]) -> Iterator[Violation]:
    for event in events:
        if len({delivery.broker_number for delivery in event.deliveries}) > 1:
            yield Violation("duplicate", f"{event}: the topic took it twice")
        for delivery in event.deliveries:
            if delivery.at > completed.get(delivery.broker_number, delivery.at):
                yield Violation("delivered after completion", str(event))


def _effects(operation: Operation, events: Sequence[Event]) -> Iterator[Violation]:
    happened = Counter(event.action for event in events)
    for action, times in happened.items():
        if times > 1:
            yield Violation("done twice", f"{operation.name} caused {times} {action}s")
    missing = operation.actions - set(happened)
    if operation.outcome == "acknowledged" and missing and not operation.asked.reuses_key:
        where = ", ".join(operation.contacts)
        yield Violation(
            "lost event", f"{operation.name}, contact {where}: {', '.join(sorted(missing))}", may_pass=True
        )
    elif happened and missing:
        yield Violation("half done", f"{operation.name}: {', '.join(sorted(missing))} missing", may_pass=True)


def _order(contact: str, events: Sequence[Event], operations: Mapping[str, Operation]) -> Iterator[Violation]:
    sequences = [event.sequence for event in events]
    if sequences != list(range(1, len(sequences) + 1)):
        at = next(i for i, sequence in enumerate(sequences) if sequence != i + 1)
        yield Violation(
            "order", f"contact {contact}: {sequences[max(0, at - 2) : at + 3]} around place {at + 1}"
        )
    numbers = [event.first.broker_number for event in events]
    if numbers != sorted(numbers):
        yield Violation("order", f"contact {contact}: handed out in another order than it was stored in")
    if events[0].action != CREATED:
        yield Violation("order", f"contact {contact} begins with {events[0].action}")
    if DELETED in [event.action for event in events[:-1]]:
        yield Violation("order", f"contact {contact} goes on after its deletion")
    yield from _order_in_time(contact, events, operations)


def _order_in_time(
    contact: str, events: Sequence[Event], operations: Mapping[str, Operation]
) -> Iterator[Violation]:
    """What was answered before something else was asked comes before it."""
    latest_start = float("-inf")
    for event in sorted(events, key=lambda event: event.sequence):
        operation = operations.get(event.operation)
        if operation is None:
            continue
        if any(answer.at < latest_start for answer in operation.acknowledged):
            yield Violation("order in time", f"{event}: answered before what comes before it was asked")
        started = [attempt.asked.at for attempt in operation.attempts if attempt.cause == event.cause]
        latest_start = max([latest_start, *started])


def _final_state(
    found: Sequence[Mapping[str, object]], by_contact: Mapping[str, Sequence[Event]]
) -> Iterator[Violation]:
    listed = Counter(str(contact["id"]) for contact in found)
    for contact, times in listed.items():
        if times > 1:
            yield Violation("doubled contact", f"{contact} is listed {times} times")
    states = {contact: _state(each) for contact, each in by_contact.items()}
    expected = {contact: state for contact, state in states.items() if state}
    for contact in expected.keys() - listed.keys():
        yield Violation("lost contact", f"{contact} is not in the final list", may_pass=True)
    for contact in listed.keys() - expected.keys():
        yield Violation("contact without its events", f"{contact} is in the final list", may_pass=True)
    for body in found:
        state = expected.get(str(body["id"]))
        if state is not None and values(body) != state:
            yield Violation(
                "state differs from the events",
                f"contact {body['id']}: {values(body)}, not {state}",
                may_pass=True,
            )


def _state(events: Sequence[Event]) -> dict[str, str | None]:
    """What a contact is after its events; empty when it is deleted, or was never created."""
    state: dict[str, str | None] = {}
    for event in sorted(events, key=lambda event: event.sequence):
        if event.action == DELETED:
            return {}
        state |= values(event.body.get("contact") or {}) if event.action == CREATED else values(event.body)
    return state
