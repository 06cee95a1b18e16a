"""Checks that refusals are true: a refusal is a statement about what is stored.

An aggregate is not found only after its deletion, and an ETag is refused only after a change of the aggregate. A
creation with a key is never refused: it gets the first answer, or must retry later; a change with a key is not
refused once it is made. Reads are judged elsewhere.

The order of two requests is not always known: the rules apply only if it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from outbox_simulation.invariants.history import Exchange, History, Operation
from outbox_simulation.invariants.violation import Violation


def false_refusals(operations: Iterable[Operation]) -> Iterator[Violation]:
    """Yields requests that were refused without a reason."""
    about: defaultdict[str, list[Exchange]] = defaultdict(list)
    for operation in operations:
        for aggregate in operation.aggregates if operation.call != "read" else ():
            about[aggregate] += operation.attempts
    for aggregate, attempts in about.items():
        for attempt in attempts:
            status = attempt.answer.status if attempt.answer else None
            if status == 404 and _is_there(attempt, attempts):
                yield Violation("not found, but there", f"{attempt.cause} about {aggregate}")
            if status == 412 and _is_unchanged(attempt, attempts):
                yield Violation("refused as changed, but unchanged", f"{attempt.cause} about {aggregate}")


_COME_AGAIN = {429, 503}


def refused_changes(operations: Iterable[Operation], history: History) -> Iterator[Violation]:
    """Yields changes with a key that were refused although they had been made, or acknowledged, before the request."""
    made: dict[str, float] = {}
    for stored in history.stored.values():
        name = str(stored.body.get("correlationId")).rpartition(".")[0]
        made[name] = min(stored.at, made.get(name, stored.at))
    for operation in operations:
        if operation.asked.key is None or operation.call == "create":
            continue
        known = min([made.get(operation.name, float("inf")), *(each.at for each in operation.acknowledged)])
        for attempt in operation.attempts:
            status = attempt.answer.status if attempt.answer else None
            is_refused = status is not None and status >= 400 and status not in _COME_AGAIN
            if is_refused and known < attempt.asked.at:
                yield Violation("made, and refused", f"{attempt.cause} with a key got {status}")
        sequences = {each.sequence for each in operation.acknowledged} - {None}
        if len(sequences) > 1:
            yield Violation("repetition differs", f"{operation.name} was answered {sequences}")


def refused_repetitions(operations: Iterable[Operation]) -> Iterator[Violation]:
    """Yields refused creations with a key of their own. Only a deletion is a reason to refuse one.

    This holds also while another attempt with the key is under way: one of two is first, and answers for both.
    """
    about = [each for each in operations if each.call == "delete"]
    for operation in operations:
        if operation.asked.key is None or operation.asked.reuses_key or operation.call != "create":
            continue
        deletions = [each for each in about if each.aggregates & operation.aggregates]
        for attempt in operation.attempts:
            status = attempt.answer.status if attempt.answer else None
            is_refused = status is not None and status >= 400 and status not in _COME_AGAIN
            if is_refused and not (status == 410 and _begun_before(attempt.ended, deletions)):
                yield Violation("repetition refused", f"{attempt.cause} with a key got {status}")


def _begun_before(moment: float, operations: Iterable[Operation]) -> bool:
    return any(each.attempts[0].asked.at < moment for each in operations)


def _is_there(asking: Exchange, attempts: Sequence[Exchange]) -> bool:
    """Whether it was created before the request, and nobody else had asked to delete it before the answer."""
    deletions = [each for each in attempts if each.asked.call == "delete" and each is not asking]
    return any(
        each.asked.call == "create" and each.outcome == "acknowledged" and each.ended < asking.asked.at
        for each in attempts
    ) and not any(each.asked.at < asking.ended for each in deletions)


def _is_unchanged(asking: Exchange, attempts: Sequence[Exchange]) -> bool:
    """Whether no other change ran since the one that gave the ETag began; a request without an answer runs for ever."""
    origin = next(
        (
            each
            for each in attempts
            if each.answer and each.answer.etag and each.answer.etag == asking.asked.if_match
        ),
        None,
    )
    if origin is None:
        return False
    return not any(
        each.asked.at < asking.ended and each.ended > origin.asked.at
        for each in attempts
        if each.outcome != "refused" and each is not origin
    )
