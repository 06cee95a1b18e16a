"""Each claim of a key, and each aggregate that is made under one, is a step that the model of claims allows.

What the model leaves out (who asks, which body it was) may be anything; that the record of a request is of the claim's
body is looked at here. What expires before the claim does breaks ``lives_as_long``, whether or not anybody asks then.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from cosmos_outbox.cosmos.aggregates.documents import REQUEST_TYPE
from cosmos_outbox.cosmos.aggregates.idempotency import CLAIM_TYPE
from replayed.commits import Commit, Document, NotAllowed
from tests.models.claims import Claim, Claims, Contact, Request, State

_NEVER = datetime.max.replace(tzinfo=UTC)
_NOTHING = Contact()


@dataclass(frozen=True)
class _Claimed:
    """The claim of a key."""

    aggregate: str
    fingerprint: str
    until: datetime


@dataclass(frozen=True)
class _Made:
    """An aggregate, and the record beside it; each is there until a time."""

    contact: Contact = _NOTHING
    until: datetime = _NEVER
    record_until: datetime = _NEVER


@dataclass
class _Answers:
    claims: dict[str, _Claimed] = field(default_factory=dict)
    """By key."""
    made: dict[str, _Made] = field(default_factory=dict)

    def claim_of(self, aggregate: str, at: datetime) -> _Claimed | None:
        """The one that names it now."""
        living = (each for each in self.claims.values() if each.aggregate == aggregate)
        return next((each for each in living if each.until > at), None)


def claim_steps(commits: Iterable[Commit], kind: str) -> Iterator[NotAllowed]:
    """The writes that the model does not allow. ``kind``: the type of the aggregates, each its own partition."""
    answers = _Answers()
    for commit in commits:
        for was, now in commit.changes:
            if _type_of(was, now) == CLAIM_TYPE and (why := _why_no_claim(answers, was, now, commit.at)):
                yield NotAllowed(commit, str((now or was or {})["id"]), why)
        for name in dict.fromkeys(_aggregates(commit, kind)):
            if why := _why_not_made(answers, name, commit, kind):
                yield NotAllowed(commit, name, why)


def _type_of(was: Document | None, now: Document | None) -> object:
    return (now or was or {}).get("type")


def _aggregates(commit: Commit, kind: str) -> Iterator[str]:
    for was, now in commit.changes:
        if _type_of(was, now) in (kind, REQUEST_TYPE):
            yield str((now or was or {})["partitionKey"])


def _why_no_claim(answers: _Answers, was: Document | None, now: Document | None, at: datetime) -> str:
    """Empty: the model makes this claim too."""
    if now is None:
        return "a claim is removed"
    there = None if was is None else answers.claims[str(was["id"])]
    living = None if there is None or there.until <= at else Claim(0, "good")
    if _step(State((Request(),), (Contact(),) * 3, living), "request 0: makes the claim") is None:
        return "a claim is written over another one that is still there (created_not_read)"
    claim = _Claimed(now["data"]["aggregateId"], now["data"]["fingerprint"], _until(now, at))
    if claim.aggregate in {*answers.made, *(each.aggregate for each in answers.claims.values())}:
        return "its id is no new one (fresh_id)"
    answers.claims[str(now["id"])] = claim
    return ""


def _why_not_made(answers: _Answers, name: str, commit: Commit, kind: str) -> str:
    before, claim = answers.made.get(name, _Made()), answers.claim_of(name, commit.at)
    is_now = before
    fingerprint = claim.fingerprint if claim else None
    for was, now in commit.changes:
        if now is None or now["partitionKey"] != name:
            continue
        if _type_of(was, now) == kind:
            deleted = now["data"].get("deleted", False)
            contact = is_now.contact._replace(stored="deleted" if deleted else "live")
            is_now = replace(is_now, contact=contact, until=_until(now, commit.at))
        elif _type_of(was, now) == REQUEST_TYPE:
            erased = "erased" in now["data"]
            fingerprint = fingerprint if erased else now["data"]["fingerprint"]
            contact = is_now.contact._replace(record="erased" if erased else "answer")
            is_now = replace(is_now, contact=contact, record_until=_until(now, commit.at))
    answers.made[name] = is_now
    if claim is not None and fingerprint != claim.fingerprint:
        return "its record is of another request than its claim"
    if claim is not None and min(is_now.until, is_now.record_until) < claim.until:
        return "it or its record expires before its claim (lives_as_long)"
    if before.until <= commit.at:
        before = replace(before, contact=before.contact._replace(stored="expired"))
    return _why_no_step(before.contact, is_now.contact, claim)


def _why_no_step(before: Contact, is_now: Contact, claim: _Claimed | None) -> str:
    if before == is_now or (claim is None and (before.stored, is_now) == ("never", Contact("live"))):
        return ""  # another change; or one that was made without a key
    state = State((Request("claimed", id=0),), (before, Contact()), Claim(0, "good") if claim else None)
    name = "contact 0 is deleted" if is_now.stored == "deleted" else "request 0: sends the batch"
    after = _step(state, name)
    if after is None:
        return f"no step leads from {_short(before)} to {_short(is_now)}"
    if after.problem or after.contacts[0] != is_now:
        return after.problem or f"{name} makes {_short(after.contacts[0])} of it, not {_short(is_now)}"
    return ""


def _step(state: State, name: str) -> State | None:
    """Where that step leads; None: it is none of the model's, here."""
    return next((after for step, after in Claims().successors(state) if step == name), None)


def _short(contact: Contact) -> str:
    return f"({contact.stored}, record: {contact.record})"


def _until(item: Document, at: datetime) -> datetime:
    return at + timedelta(seconds=item["ttl"]) if item["ttl"] > 0 else _NEVER
