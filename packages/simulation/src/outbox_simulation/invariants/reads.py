"""Checks that a read shows an actual state, no older than its session's; and the version of a conditional write.

A read without a session may be as old as it likes: an old replica may answer it, and show nothing at all.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from outbox_simulation.invariants.history import Exchange, History, Operation, SeenEvent
from outbox_simulation.invariants.language import Language
from outbox_simulation.invariants.states import EventStates
from outbox_simulation.invariants.violation import Violation

EVERYBODY = "*"
"""The session of a read that misses nothing of any earlier answer."""


def reads(
    operations: Iterable[Operation], facts: Mapping[str, EventStates], language: Language
) -> Iterator[Violation]:
    """Yields the impossible answers to reads."""
    every = [*operations]
    by_session: defaultdict[tuple[str, str], list[Exchange]] = defaultdict(list)
    deletions: defaultdict[str, list[Exchange]] = defaultdict(list)
    about: defaultdict[str, list[Exchange]] = defaultdict(list)
    for operation in every:
        for attempt in operation.attempts:
            for aggregate in operation.aggregates:
                about[aggregate].append(attempt)
                if attempt.asked.session not in {None, EVERYBODY}:
                    by_session[attempt.asked.session, aggregate].append(attempt)
                if operation.call == "delete":
                    deletions[aggregate].append(attempt)
    for (_, aggregate), attempts in by_session.items():
        yield from _sessions(attempts, attempts, deletions[aggregate])
    for aggregate, attempts in about.items():
        newest = [each for each in attempts if each.asked.session == EVERYBODY]
        yield from _sessions(newest, attempts, deletions[aggregate])
    for operation in every:
        if operation.call == "read":
            yield from _as_it_was(operation, facts, language)


def _sessions(
    asked: Sequence[Exchange], attempts: Sequence[Exchange], deletions: Sequence[Exchange]
) -> Iterator[Violation]:
    """Checks each read against every answer that its session got before it."""
    for read in asked:
        answer = read.answer
        if read.asked.call != "read" or answer is None:
            continue
        seen = [
            each.answer.sequence
            for each in attempts
            if each.answer and each.answer.at < read.asked.at and each.answer.sequence is not None
        ]
        gone = any(
            each.asked.call == "delete" and each.outcome == "acknowledged" and each.ended < read.asked.at
            for each in attempts
        )
        if answer.status == 404 and seen and not any(each.asked.at < answer.at for each in deletions):
            yield Violation("read went back", f"{read.cause} found nothing, and its session had seen it")
        if answer.outcome != "acknowledged":
            continue
        if gone:
            yield Violation("read went back", f"{read.cause} found what its session had deleted")
        elif answer.sequence is not None and answer.sequence < max(seen, default=0):
            yield Violation(
                "read went back", f"{read.cause} saw sequence {answer.sequence}, its session {max(seen)}"
            )


def _as_it_was(
    operation: Operation, facts: Mapping[str, EventStates], language: Language
) -> Iterator[Violation]:
    """Checks that a read shows the aggregate after that event; an event that is not known yet proves nothing."""
    for answer in operation.acknowledged:
        if answer.sequence is None or answer.aggregate is None:
            continue
        if answer.aggregate not in facts or answer.sequence not in facts[answer.aggregate].states:
            continue
        state = facts[answer.aggregate].states[answer.sequence]
        if state is None or language.values(answer.body or {}) != language.values(state):
            yield Violation(
                "read of what never was", f"{operation.name}: {answer.aggregate} at {answer.sequence}"
            )


def conditional_writes(
    operations: Iterable[Operation], history: History, events: Iterable[SeenEvent]
) -> Iterator[Violation]:
    """Checks that an acknowledged conditional change comes directly after that version."""
    every = [*operations]
    versions = _versions(every)
    for (aggregate, etag), sequences in versions.items():
        if len(sequences) > 1:
            yield Violation("one ETag, two versions", f"{aggregate}, {etag}: sequences {sorted(sequences)}")
    begins: dict[str, int] = {}
    for cause, sequence in _causes(history, events):
        begins[cause] = min(sequence, begins.get(cause, sequence))
    for operation in every:
        for attempt in operation.attempts:
            if attempt.outcome != "acknowledged" or attempt.cause not in begins:
                continue
            etag, begin = attempt.asked.if_match or "", begins[attempt.cause]
            for aggregate in operation.aggregates:
                seen = versions.get((aggregate, etag), {begin - 1})
                if begin - 1 not in seen:
                    detail = f"{aggregate} was to be at {min(seen)}, and its event is number {begin}"
                    yield Violation("condition ignored", f"{attempt.cause}: {detail}")


def _versions(operations: Iterable[Operation]) -> dict[tuple[str, str], set[int]]:
    """Returns the sequence of each version of an aggregate, by its ETag, from the answers."""
    versions: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for operation in operations:
        for answer in operation.acknowledged:
            if answer.etag and answer.aggregate and answer.sequence is not None:
                versions[answer.aggregate, answer.etag].add(answer.sequence)
    return versions


def _causes(history: History, events: Iterable[SeenEvent]) -> Iterator[tuple[str, int]]:
    """Yields each event's cause and sequence: by what the store took if it is watched."""
    if history.stored:
        return ((str(each.body.get("correlationId")), each.sequence) for each in history.stored.values())
    return ((event.cause, event.sequence) for event in events)
