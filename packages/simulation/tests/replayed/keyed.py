"""Each record of a change with a key is written in a step that the model of such changes allows.

The model's versions are the states of the aggregate before and after the transaction: how many events lie between them
is left out. What the aggregate answers is its own, so each of the model's answers may be.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple

from cosmos_outbox.cosmos.aggregates.documents import CHANGE_TYPE
from replayed.commits import Commit, Document, NotAllowed
from tests.models.keyed import Delivery, Model, Record, State, Story, Thing

_CHANGES = ("adds", "needs-other", "wants-other", "deletes")


class _View(NamedTuple):
    """What one transaction makes of an aggregate and the record."""

    changed: bool
    deleted: bool
    outcome: str
    version: int
    """At which state the record says the aggregate is: 0 the one before, 1 the one after, -1 another."""


def keyed_steps(commits: Iterable[Commit], kind: str) -> Iterator[NotAllowed]:
    """The writes that the model does not allow. ``kind``: the type of the aggregates, each its own partition."""
    aggregates: dict[str, Document] = {}
    until: dict[tuple[str, str], datetime] = {}
    for commit in commits:
        before = {**aggregates}
        aggregates |= {
            now["id"]: now for _, now in commit.changes if now is not None and now.get("type") == kind
        }
        for was, now in commit.changes:
            document = now or was
            if document is None or document.get("type") != CHANGE_TYPE:
                continue
            name, record = document["partitionKey"], (document["partitionKey"], document["id"])
            there = was is not None and until[record] > commit.at
            if why := _why_not(before.get(name), aggregates.get(name), now, there=there):
                yield NotAllowed(commit, name, why)
            until[record] = commit.at + timedelta(seconds=document["ttl"])


def _why_not(before: Document | None, after: Document | None, record: Document | None, *, there: bool) -> str:
    """Empty: it is allowed. ``there``: whether this request has a record already."""
    if record is None:
        return "a record is removed"
    if before is None or after is None:
        return "there is a record, and no aggregate"
    sequences = [each["data"]["lastSequence"] for each in (before, after)]
    written, changed = record["data"]["sequence"], after is not before
    refused = "nothing" if record["data"]["refused"] is None else "refused"
    view = _View(
        changed,
        bool(after["data"].get("deleted")),
        "applied" if changed else refused,
        sequences.index(written) if written in sequences[: 1 + changed] else -1,
    )
    if changed and record["data"]["refused"] is not None:
        return "a record says that it was refused, and the aggregate is changed with it"
    if view in _made(bool(before["data"].get("deleted")), there):
        return ""
    has = "with its record there" if there else "without a record"
    return (
        f"no step {has} stores {view} over a {'deleted' if before['data'].get('deleted') else 'living'} one"
    )


@cache
def _made(deleted: bool, there: bool) -> frozenset[_View]:
    """What one delivery can store, whatever the aggregate answers to it, and with what others wrote before."""
    made: set[_View] = set()
    for change in _CHANGES:
        for other in (False, True):
            model, record = Model(Story(change)), Record("a", "a: x", "applied", 0)
            delivery = Delivery(at="read", round=1)
            first = State((delivery,), (Thing(deleted, (), other),), (record,) if there else ())
            made |= {*_stored(model, first)}
    return frozenset(made)


def _stored(model: Model, first: State) -> Iterator[_View]:
    seen, waiting = {first}, [first]
    while waiting:
        state = waiting.pop()
        if state.records != first.records:
            record, changed = state.records[-1], len(state.history) > 1
            yield _View(changed, state.history[-1].deleted, record.outcome, record.version)
            continue
        for _, after in model.successors(state):
            if after not in seen and len(after.history) <= len(first.history) + 1:
                seen.add(after)
                waiting.append(after)
