"""A change with a key as a model: two deliveries of a request or more, another writer, a deletion, and time.

What is decided of an aggregate is decided by ``cosmos_outbox.cosmos.aggregates.idempotency.decide`` itself. What is
around it is written down here step by step, as that module does it. Deliveries die, answers are lost and reads are old
at any time.
Each rule can be turned off. The rules are those of ``docs/internals/decisions/0025-reactions.md``.

Time is not counted: a delivery grows slow at any time; a record expires when none is left that began before the record
was made and is still in time. After that its key is a new request, for every later look.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from cosmos_outbox.cosmos.aggregates.idempotency import ChangeRequest, decide
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import KeyedRequest, Precondition, Versioned
from cosmos_outbox.outbox.errors import OutboxError

RULES = frozenset({
    "one_batch", "created_only", "at_its_version", "caller_in_id", "fingerprint", "record_before_no",
    "state_then_record", "newest_for_a_no", "decide_anew", "unused_by_412", "refusal_recorded", "etag_if_same",
    "deadline",
})  # fmt: skip

TWICE = "a request is applied twice"
OVERWRITTEN = "another's change is overwritten"
WRONG_NO = "a request is answered that it is not applied, and it is"
CURRENT_REFUSED = "a request that pins the current version is answered 412"
UNPINNED_412 = "a request that pins no version is answered 412"
OLD_NO = "an old read's no is answered"
CHANGED_ITS_MIND = "a request that was answered a no is applied"
NEVER_MADE = "a request is answered as applied, and is not"
ANOTHERS_KEY = "a caller is answered 422 for another's key"
UNSEEN_ETAG = "a repetition gets the ETag of a version that its caller never saw"

ROUNDS = 3


class Thing(NamedTuple):
    """The aggregate; its place in the history is its version."""

    deleted: bool = False
    log: tuple[str, ...] = ()
    """The requests that it was changed by."""
    other: bool = False
    """Another writer has changed it."""


class Delivery(NamedTuple):
    """A request, as it comes once."""

    request: str = "a: x"
    """Whose it is, and with which body; all have one key."""
    pinned: int | None = None
    """The version in If-Match."""
    at: str = "idle"
    round: int = 0
    least: int = 0
    """How new its reads are."""
    since: int = 0
    """The newest version when it began."""
    seen: int = -1
    """The version that it has read."""
    unrecorded: bool = True
    """It began when there had been no record of its request."""
    applied: bool = False
    """When it last looked, at the aggregate or for the record, its request was applied."""
    in_time: bool = True
    sent: bool = False
    """Sent, and the answer was lost."""
    stored: bool = False
    answer: str = ""
    lives: int = 1
    """How often it is repeated by its caller, who reads again before."""


class Record(NamedTuple):
    name: str
    request: str
    outcome: str
    """applied, nothing, refused; 412 where the rule is off."""
    version: int


class State(NamedTuple):
    deliveries: tuple[Delivery, ...]
    history: tuple[Thing, ...] = (Thing(),)
    records: tuple[Record, ...] = ()
    refusals: tuple[str, ...] = ()
    """Requests that were answered a no for good."""
    expired: bool = False
    """A record has expired: what begins now is a new request."""
    problem: str = ""


Steps = Iterator[tuple[str, State]]


@dataclass(frozen=True)
class Story:
    """Who asks for what, and what else happens."""

    change: str = "adds"
    """Also: needs-other (refused without the other's change), wants-other (nothing without it), deletes."""
    requests: tuple[tuple[str, int | None], ...] = (("a: x", None), ("a: x", None))
    """Each with the version that it pins."""
    other: bool = False
    deletes: bool = False
    """Another writer deletes the aggregate."""
    ages: bool = False
    rebases: int = 0
    """How often a caller who was answered 412 reads again and repeats the request."""


class _Refused(Exception):
    """The aggregate refuses the change."""


@dataclass
class _State:
    last_sequence: int


class _Aggregate:
    """The aggregate as the decision sees it."""

    aggregate_type = "thing"
    key = AggregateKey("thing", "1")

    def __init__(self, thing: Thing, version: int) -> None:
        self.thing, self.state, self.changed = thing, _State(version), False

    def changes(self) -> "_Aggregate | None":
        return self if self.changed else None


@dataclass(frozen=True)
class Model:
    """The protocol under these rules."""

    story: Story = Story()
    rules: frozenset[str] = RULES

    def initial(self) -> State:
        lives = 1 + self.story.rebases
        return State(tuple(Delivery(request, pinned, lives=lives) for request, pinned in self.story.requests))

    def successors(self, state: State) -> Steps:
        """Each step of a delivery, of others, and of time."""
        if state.problem:
            return
        for number, delivery in enumerate(state.deliveries):
            for step, reached in self._delivery(state, number, delivery):
                yield f"{number + 1}: {step}", reached
        yield from self._others(state)

    def _on(self, rule: str) -> bool:
        return rule in self.rules

    def _name(self, delivery: Delivery) -> str:
        return delivery.request.partition(":")[0] if self._on("caller_in_id") else "key"

    def _delivery(self, state: State, number: int, delivery: Delivery) -> Steps:
        if delivery.at not in ("idle", "over"):
            yield "dies", _put(state, number, delivery._replace(at="over"))
            if self.story.ages and delivery.in_time:
                yield "is slow", _put(state, number, delivery._replace(in_time=False))
        yield from self._step(state, number, delivery)

    def _step(self, state: State, number: int, delivery: Delivery) -> Steps:
        match delivery.at:
            case "idle" if (delivery.pinned or 0) < len(state.history):
                unrecorded = _record(state, self._name(delivery)) is None and not state.expired
                newest = len(state.history) - 1
                begun = delivery._replace(at="read", since=newest, unrecorded=unrecorded)
                yield "begins", _put(state, number, begun)
            case "renew":
                newest = len(state.history) - 1
                at = "read" if self._on("state_then_record") else "look"
                yield "renews the token", _put(state, number, delivery._replace(at=at, least=newest))
            case "read":
                yield from self._read(state, number, delivery)
            case "look":
                yield from self._look(state, number, delivery)
            case "decide":
                yield from self._decide(state, number, delivery)
            case "send":
                yield from self._send(state, number, delivery)
            case "record":
                yield from self._send_record(state, number, delivery)
            case "no":
                yield from self._send_no(state, number, delivery)

    def _read(self, state: State, number: int, delivery: Delivery) -> Steps:
        newest = len(state.history) - 1
        for version in range(delivery.least, newest + 1):
            looks = delivery.round and self._on("record_before_no") and self._on("state_then_record")
            at = "look" if looks else "decide"
            yield (
                "reads" if version == newest else "reads an old state",
                _put(state, number, self._looked(state, delivery)._replace(at=at, seen=version)),
            )

    def _looked(self, state: State, delivery: Delivery) -> Delivery:
        return delivery._replace(applied=delivery.request in _ever(state))

    def _look(self, state: State, number: int, delivery: Delivery) -> Steps:
        """By the answer to a write."""
        record = _record(state, self._name(delivery))
        if record is None:
            at = "decide" if self._on("state_then_record") else "read"
            yield "finds no record", _put(state, number, self._looked(state, delivery)._replace(at=at))
        else:
            yield "finds the record", self._replayed(state, number, delivery, record)

    def _replayed(self, state: State, number: int, delivery: Delivery, record: Record) -> State:
        if self._on("fingerprint") and record.request != delivery.request:
            after = _answered(state, number, "422")
            others = record.request.partition(":")[0] != delivery.request.partition(":")[0]
            return after._replace(problem=ANOTHERS_KEY) if others else after
        if record.outcome == "412":
            newest = len(state.history) - 1
            wrong = CURRENT_REFUSED if delivery.pinned == newest else ""
            return _answered(state, number, "412")._replace(problem=wrong)
        after = _answered(state, number, record.outcome)
        seen = delivery.seen if delivery.seen >= 0 else len(state.history) - 1
        if seen != record.version and not self._on("etag_if_same"):
            return after._replace(problem=UNSEEN_ETAG)
        never = record.outcome == "applied" and delivery.request not in _ever(state)
        return after._replace(problem=NEVER_MADE) if never else after

    def _decision(self, thing: Thing, version: int, pinned: int | None) -> str:
        aggregate = None if thing.deleted else _Aggregate(thing, version)

        def change(target: _Aggregate) -> None:
            if self.story.change == "needs-other" and not thing.other:
                raise _Refused
            target.changed = self.story.change != "wants-other" or thing.other

        kind: Any = _Aggregate
        found: Any = None if aggregate is None else Versioned[Any](aggregate, str(version))
        wanted = ChangeRequest[Any](
            kind,
            "1",
            "1",
            change,
            KeyedRequest("", "", ""),
            Precondition(() if pinned is None else (str(pinned),)),
        )
        try:
            changes = decide(wanted, found)
        except OutboxError as no:
            return "404" if aggregate is None else str(no) and "412"
        except _Refused:
            return "refused"
        return "applied" if changes is not None else "nothing"

    def _decide(self, state: State, number: int, delivery: Delivery) -> Steps:
        decision = self._decision(state.history[delivery.seen], delivery.seen, delivery.pinned)
        if decision == "applied":
            yield "wants to apply it", _put(state, number, delivery._replace(at="send"))
        elif delivery.round == 0 and self._on("newest_for_a_no"):
            yield f"{decision}, so looks again", self._again(state, number, delivery)
        elif decision in ("412", "404") or not self._on("refusal_recorded"):
            if decision == "412" and not self._on("unused_by_412"):
                yield "412", _put(state, number, delivery._replace(at="no", answer="412"))
            else:
                yield decision, self._no(state, number, delivery, decision)
        else:
            yield decision, _put(state, number, delivery._replace(at="no", answer=decision))

    def _no(self, state: State, number: int, delivery: Delivery, decision: str) -> State:
        """It is answered, if that is not too late."""
        delivery = state.deliveries[number]
        if not delivery.in_time and self._on("deadline"):
            return _answered(state, number, "503")
        after, newest = _answered(state, number, decision), len(state.history) - 1
        since = self._decision(state.history[delivery.since], delivery.since, delivery.pinned)
        now = self._decision(state.history[-1], newest, delivery.pinned)
        problem = ""
        if delivery.applied and delivery.unrecorded and decision != "nothing":
            problem = WRONG_NO
        elif decision == "412":
            problem = UNPINNED_412 if delivery.pinned is None else ""
            if delivery.pinned == newest:
                problem = CURRENT_REFUSED
        elif decision in ("refused", "nothing") and since == now == "applied":
            problem = OLD_NO
        if decision in ("refused", "nothing"):
            after = after._replace(refusals=tuple(sorted({*after.refusals, delivery.request})))
        return after._replace(problem=problem)

    def _again(self, state: State, number: int, delivery: Delivery) -> State:
        if delivery.round + 1 >= ROUNDS:
            return _answered(state, number, "409, try again")
        again = delivery._replace(
            at="renew", round=delivery.round + 1, seen=-1, applied=False, sent=False, stored=False
        )
        return _put(state, number, again)

    def _send(self, state: State, number: int, delivery: Delivery) -> Steps:
        if not delivery.in_time and self._on("deadline"):
            yield "sends nothing any more", _answered(state, number, "503")
            return
        if delivery.stored:  # by its own event it learns that
            yield "learns of its own batch", _answered(state, number, "applied")
            return
        there = _record(state, self._name(delivery)) is not None
        if there and self._on("created_only") and self._on("one_batch"):
            yield "the record is there", self._again(state, number, delivery)
        elif delivery.seen != len(state.history) - 1 and (
            self._on("at_its_version") or state.history[-1].deleted
        ):
            if self._on("decide_anew"):
                yield "is refused by the aggregate", self._again(state, number, delivery)
            else:
                yield "is refused by the aggregate", self._no(state, number, delivery, "412")
        else:
            stored = self._stored(state, delivery)
            if not delivery.sent:
                lost = delivery._replace(sent=True)
                yield "stores, answer lost", _put(stored, number, lost._replace(stored=True))
                yield "does not arrive", _put(state, number, lost)
            if self._on("one_batch"):
                yield "stores", _answered(stored, number, "applied")
            else:
                yield "stores", _put(stored, number, delivery._replace(at="record"))

    def _stored(self, state: State, delivery: Delivery) -> State:
        now, seen = state.history[-1], state.history[delivery.seen]
        after = Thing(self.story.change == "deletes", (*seen.log, delivery.request), seen.other)
        problem = ""
        if now.other and not after.other:
            problem = OVERWRITTEN
        elif delivery.request in _ever(state) and delivery.unrecorded:
            problem = TWICE
        elif delivery.request in state.refusals and delivery.unrecorded:
            problem = CHANGED_ITS_MIND
        reached = state._replace(history=(*state.history, after), problem=problem)
        return self._with_record(reached, delivery, "applied") if self._on("one_batch") else reached

    def _with_record(self, state: State, delivery: Delivery, outcome: str) -> State:
        name = self._name(delivery)
        others = tuple(each for each in state.records if each.name != name)
        version = len(state.history) - 1 if outcome == "applied" else delivery.seen
        return state._replace(records=(*others, Record(name, delivery.request, outcome, version)))

    def _send_record(self, state: State, number: int, delivery: Delivery) -> Steps:
        yield (
            "stores the record",
            _answered(self._with_record(state, delivery, "applied"), number, "applied"),
        )

    def _send_no(self, state: State, number: int, delivery: Delivery) -> Steps:
        """The record of a no, alone."""
        if not delivery.in_time and self._on("deadline"):
            yield "sends nothing any more", _answered(state, number, "503")
        elif _record(state, self._name(delivery)) is not None:
            yield "the record is there", self._again(state, number, delivery)
        else:
            stored = self._with_record(state, delivery, delivery.answer)
            yield "records the no", self._no(stored, number, delivery, delivery.answer)
            yield "records the no, answer lost", self._again(stored, number, delivery)

    def _others(self, state: State) -> Steps:
        now = state.history[-1]
        if self.story.other and not now.other and not now.deleted:
            changed = (*state.history, now._replace(other=True))
            yield "another writer changes it", state._replace(history=changed)
        if self.story.deletes and not now.deleted:
            yield "it is deleted", state._replace(history=(*state.history, now._replace(deleted=True)))
        waits = any(
            each.at not in ("idle", "over") and each.in_time and each.unrecorded for each in state.deliveries
        )
        if self.story.ages and state.records and not waits:
            yield "the record expires", state._replace(records=(), expired=True)
        for number, each in enumerate(state.deliveries):
            if each.answer == "412" and each.at == "over" and each.lives > 1:
                newest, lives = len(state.history) - 1, each.lives - 1
                yield (
                    f"{number + 1}: its caller reads again, and repeats it",
                    _put(state, number, Delivery(each.request, newest, lives=lives)),
                )


def _put(state: State, number: int, delivery: Delivery) -> State:
    deliveries = list(state.deliveries)
    deliveries[number] = delivery
    return state._replace(deliveries=tuple(deliveries))


def _answered(state: State, number: int, answer: str) -> State:
    over = state.deliveries[number]
    return _put(state, number, Delivery(over.request, over.pinned, "over", answer=answer, lives=over.lives))


def _record(state: State, name: str) -> Record | None:
    return next((each for each in state.records if each.name == name), None)


def _ever(state: State) -> set[str]:
    """The requests that changed the aggregate."""
    return {each for thing in state.history for each in thing.log}
