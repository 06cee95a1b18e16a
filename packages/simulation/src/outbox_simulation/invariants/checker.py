"""Checks a service's promises, each by one rule over the clients' requests and answers, and the subscribers' messages.

Nothing here imports what is judged: shared code would share its mistakes. A violation with ``may_pass`` can still
end by waiting, such as an event that has not arrived yet; every other violation is final.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import count, islice, pairwise

from outbox_simulation.invariants.committed import committed, excused
from outbox_simulation.invariants.entries import entries
from outbox_simulation.invariants.history import Exchange, History, Operation, SeenEvent
from outbox_simulation.invariants.language import SKIP_MARKER, Language
from outbox_simulation.invariants.past_the_api import parking, skip_markers, unsequenced
from outbox_simulation.invariants.reads import conditional_writes, reads
from outbox_simulation.invariants.refusals import false_refusals, refused_changes, refused_repetitions
from outbox_simulation.invariants.states import event_states, final_state
from outbox_simulation.invariants.violation import Violation

_BUCKET = re.compile(r"[0-9]+-[0-9]+")

EXPECTED_STATUSES = {200, 201, 204, 404, 409, 410, 412, 422, 429, 503}
"""The possible answers to a well-formed request; any other, a bare 500 above all, is a violation."""


def check(history: History, language: Language, *, duplicate_window: float = float("inf")) -> list[Violation]:
    """Returns everything that is wrong with a run; only its records are checked.

    ``duplicate_window``: for how many seconds after a message the topic drops another one with its id.
    """
    operations = history.operations()
    delivered = history.events()
    events = [
        event for event in delivered if event.action != SKIP_MARKER and event.id not in history.unsequenced
    ]
    by_aggregate: defaultdict[str, list[SeenEvent]] = defaultdict(list)
    for event in events:
        by_aggregate[event.aggregate].append(event)
    happened = _happened(history, events)
    facts = event_states(history, by_aggregate, language)
    expired: defaultdict[str, set[int]] = defaultdict(set)
    unreported = [history.stored[name] for name in history.expired & history.stored.keys()]
    for each in unreported:
        expired[each.aggregate].add(each.sequence)
    ended = {each.aggregate: each.at for each in history.stored.values() if each.action == language.deleted}
    return [
        *_answers(operations.values(), language),
        *false_refusals(operations.values()),
        *refused_repetitions(operations.values()),
        *refused_changes(operations.values(), history),
        *_each_event(events, operations, language),
        *committed(history, events, operations),
        *_deliveries(delivered, history.completed, duplicate_window),
        *_sessions(delivered, history.numbers_of_sessions),
        *(found for each in operations.values() for found in _effects(each, happened[each.name], history)),
        *(
            found
            for aggregate, each in _in_place(delivered, history).items()
            for found in _order(aggregate, each, operations, language, expired.get(aggregate, set()))
        ),
        *conditional_writes(operations.values(), history, events),
        *reads(operations.values(), facts, language),
        *final_state(history.found, facts, language),
        *entries(history.shown, facts, language, ended),
        *unsequenced(history, operations),
        *parking(history),
        *skip_markers(history),
        *(Violation("worker ended", f"{each.instance}: {each.why}") for each in history.ended),
    ]


def _answers(operations: Iterable[Operation], language: Language) -> Iterator[Violation]:
    for operation in operations:
        for attempt in operation.attempts:
            yield from _answer(operation, attempt, language)
        if operation.call == "read":
            continue
        first_answers = [answer for answer in operation.acknowledged if not answer.replayed]
        if len(first_answers) > 1:
            yield Violation("acknowledged twice", f"{operation.name} got two first answers")
        if len(operation.aggregates) > 1:
            yield Violation(
                "doubled aggregate", f"{operation.name} was answered {sorted(operation.aggregates)}"
            )
        if operation.asked.reuses_key and operation.acknowledged:
            yield Violation("reused key", f"{operation.name} was acknowledged in spite of its used key")


def _answer(operation: Operation, attempt: Exchange, language: Language) -> Iterator[Violation]:
    answer = attempt.answer
    if answer is None:
        return
    if answer.status is not None and answer.status not in EXPECTED_STATUSES:
        yield Violation("unexpected answer", f"{attempt.cause} got {answer.status}")
    if answer.outcome != "acknowledged" or operation.call == "delete":
        return
    if answer.replayed and answer.body is None:  # others have changed the aggregate since
        return
    shown = language.values(answer.body or {})
    for name, value in attempt.asked.values.items():
        if shown.get(name) != value:
            yield Violation("wrong answer", f"{attempt.cause} set its {name} and was shown {shown.get(name)}")


def _each_event(
    events: Iterable[SeenEvent], operations: Mapping[str, Operation], language: Language
) -> Iterator[Violation]:
    attempts = {attempt.cause: each for each in operations.values() for attempt in each.attempts}
    outcomes = {attempt.cause: attempt.outcome for each in attempts.values() for attempt in each.attempts}
    for event in events:
        operation = attempts.get(event.cause)
        if operation is None or event.action not in operation.actions:
            yield Violation("invented event", f"{event}: nobody asked for it")
            continue
        if outcomes[event.cause] == "refused":
            yield Violation("refused, and done", f"{event}: its request was refused")
        if operation.aggregates and event.aggregate not in operation.aggregates:
            yield Violation("wrong aggregate", f"{event}: {operation.name} was about another one")
        yield from _content(event, operation, language)


def _content(event: SeenEvent, operation: Operation, language: Language) -> Iterator[Violation]:
    body = event.body
    says = (body.get("id"), body.get(language.aggregate_id), body.get("action"), body.get("sequence"))
    if says != (event.id, event.aggregate, event.action, event.sequence):
        yield Violation("message and body differ", str(event))
    if event.action == language.deleted:
        return
    carried = language.values(language.after({}, event.action, body))
    for name, value in operation.asked.events[event.action].items():
        if carried.get(name) != value:
            yield Violation("wrong content", f"{event}: its {name} is {carried.get(name)}")


def _deliveries(
    events: Iterable[SeenEvent], completed: Mapping[int, float], window: float
) -> Iterator[Violation]:
    for event in events:
        taken: dict[int, float] = {}
        for delivery in event.deliveries:
            taken.setdefault(delivery.broker_number, delivery.at)
        times = sorted(taken.values())
        if any(after - before < window for before, after in pairwise(times)):
            yield Violation("duplicate", f"{event}: the topic took it twice")
        for delivery in event.deliveries:
            if delivery.at > completed.get(delivery.broker_number, delivery.at):
                yield Violation("delivered after completion", str(event))


def _sessions(events: Iterable[SeenEvent], numbers: int) -> Iterator[Violation]:
    """Checks that each session count gives an aggregate one session; names show it (docs/use/messages.md)."""
    used: defaultdict[str, set[str]] = defaultdict(set)
    for event in events:
        used[event.aggregate] |= {each.session for each in event.deliveries if each.session is not None}
    for aggregate, sessions in used.items():
        known = {each.partition("-")[0] if _BUCKET.fullmatch(each) else "" for each in sessions}
        if len(sessions) > len(known) or len(known) > numbers:
            yield Violation("several sessions", f"{aggregate}: {', '.join(sorted(sessions))}")


def _happened(history: History, events: Iterable[SeenEvent]) -> defaultdict[str, Counter[str]]:
    """Returns by operation the count of each event: in the store if it is watched, else at the subscriber."""
    happened: defaultdict[str, Counter[str]] = defaultdict(Counter)
    if history.stored:
        for each in history.stored.values():
            happened[str(each.body.get("correlationId")).rpartition(".")[0]][each.action] += 1
    else:
        for event in events:
            happened[event.operation][event.action] += 1
    return happened


def _effects(operation: Operation, happened: Counter[str], history: History) -> Iterator[Violation]:
    for action, times in happened.items():
        if times > 1:
            yield Violation("done twice", f"{operation.name} caused {times} {action}s")
    missing = operation.actions - set(happened)
    may_come = not history.stored
    if operation.outcome == "acknowledged" and missing and not operation.asked.reuses_key:
        where = ", ".join(operation.aggregates)
        rule = "lost event" if may_come else "acknowledged, and not stored"
        yield Violation(rule, f"{operation.name}, of {where}: {', '.join(sorted(missing))}", may_come)
    elif happened and missing:
        yield Violation("half done", f"{operation.name}: {', '.join(sorted(missing))} missing", may_come)


def _in_place(delivered: Iterable[SeenEvent], history: History) -> dict[str, list[SeenEvent]]:
    """Returns what subscribers got of each aggregate, with skip markers in place of events discarded unsent."""
    instead = excused(history)
    places: defaultdict[str, list[SeenEvent]] = defaultdict(list)
    for event in delivered:
        of_a_place = event.action != SKIP_MARKER or str(event.body.get("discardedEventId")) in instead
        if event.id not in history.unsequenced and of_a_place:
            places[event.aggregate].append(event)
    return places


def _order(
    aggregate: str,
    events: Sequence[SeenEvent],
    operations: Mapping[str, Operation],
    language: Language,
    expired: Set[int],
) -> Iterator[Violation]:
    sequences = [event.sequence for event in events]
    there = (place for place in count(1) if place not in expired)
    if sequences != (wanted := [*islice(there, len(sequences))]):
        at = next(i for i, sequence in enumerate(sequences) if sequence != wanted[i])
        yield Violation("order", f"{aggregate}: {sequences[max(0, at - 2) : at + 3]} around place {at + 1}")
    numbers = [event.first.broker_number for event in events]
    if numbers != sorted(numbers):
        yield Violation("order", f"{aggregate}: handed out in another order than it was stored in")
    if 1 not in expired and events[0].action not in (language.created, SKIP_MARKER):
        yield Violation("order", f"{aggregate} begins with {events[0].action}")
    if language.deleted in [event.action for event in events[:-1]]:
        yield Violation("order", f"{aggregate} goes on after its deletion")
    yield from _order_in_time(events, operations)


def _order_in_time(events: Sequence[SeenEvent], operations: Mapping[str, Operation]) -> Iterator[Violation]:
    """Checks that an event of an earlier answer comes before those of later requests."""
    latest_start = float("-inf")
    for event in sorted(events, key=lambda event: event.sequence):
        operation = operations.get(event.operation)
        if operation is None:
            continue
        if any(answer.at < latest_start for answer in operation.acknowledged):
            yield Violation("order in time", f"{event}: answered before what comes before it was asked")
        started = [attempt.asked.at for attempt in operation.attempts if attempt.cause == event.cause]
        latest_start = max([latest_start, *started])
