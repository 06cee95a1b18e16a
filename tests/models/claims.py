"""Requests with one idempotency key: every order of requests, crashes, lost answers, old reads, deletions and expiries.

The model's rules have the names of ``docs/internals/decisions/0008-idempotency-key.md``, and so have the comments in
``idempotency.py``, ``unit_of_work.py`` and ``aggregates.py`` of ``cosmos_outbox/cosmos/aggregates/``.
Without one of them a search finds a promise broken; with all of them it finds none. Time is not counted: what can
happen at any time, may; only what a rule keeps in order is in order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

RULES = frozenset({
    "checks_first", "created_not_read", "fresh_id", "token_of_the_refusal", "life_left", "deadline", "one_batch",
    "loser_answers", "lives_as_long", "erased_not_removed",
})  # fmt: skip

CORRECTED = "a corrected body is answered 422, since the refused one used the key"
OUTSIDE = "a contact is stored, and no claim names it: a request that claims now makes a second one"
CAME_BACK = "an id comes back at sequence 1"
REFUSED = "a request is answered 409"
NO_CLAIM = "a request is answered that there is no claim, and there is one"
NO_ANSWER = "a request that is in time is refused, and no answer is there"


class Claim(NamedTuple):
    id: int
    body: str
    fresh: bool = True
    """It has more life left than the longest request."""


class Contact(NamedTuple):
    stored: Literal["never", "live", "deleted", "expired"] = "never"
    record: Literal["none", "answer", "erased"] = "none"


class Request(NamedTuple):
    at: Literal["start", "refused", "claimed", "behind", "record", "done"] = "start"
    body: str = "good"
    id: int = -1
    """Of the contact, as the claim says."""
    tries: int = 0
    in_time: bool = True
    """The longest request is not over since the claim was made or read."""
    sheltered: bool = True
    """The claim was fresh then, so that it cannot expire while the request is in time."""
    stored: bool = False
    """Its batch was committed, and it did not learn that: it will know its own event."""
    answer: str = ""


class State(NamedTuple):
    requests: tuple[Request, ...]
    contacts: tuple[Contact, ...]
    claim: Claim | None = None
    problem: str = ""


Steps = Iterator[tuple[str, State]]


def initial(*bodies: str) -> State:
    """Nothing is stored; each request may begin at any time, also when another has ended."""
    return State(tuple(Request(body=body) for body in bodies), (Contact(),) * (len(bodies) + 1))


@dataclass(frozen=True)
class Claims:
    """The protocol under these rules."""

    rules: frozenset[str] = RULES
    forgets: bool = True
    """Takes states for one that differ only in what no later step depends on: then there are far fewer."""

    def successors(self, state: State) -> Steps:
        """Each step of a request, of time, and of another writer who deletes contacts."""
        if not state.problem:
            for step, reached in self._steps(state):
                yield step, self._without_what_is_over(reached)

    def _without_what_is_over(self, state: State) -> State:
        if "fresh_id" not in self.rules:
            return state
        requests = state.requests
        if self.forgets:  # which of the requests it was, and what it was answered
            requests = tuple(sorted((each._replace(answer="") for each in requests), key=_without_id(state)))
        # Ids are distinguished, and no more. One that neither claim nor request knows is never used again.
        known = dict.fromkeys(each.id for each in (state.claim, *requests) if each and each.id >= 0)
        numbers = {id_: number for number, id_ in enumerate(known)} | {-1: -1}
        contacts = [state.contacts[id_] for id_ in known]
        contacts += [Contact()] * (len(state.contacts) - len(contacts))
        claim = state.claim and state.claim._replace(id=numbers[state.claim.id])
        renumbered = tuple(each._replace(id=numbers[each.id]) for each in requests)
        return state._replace(requests=renumbered, contacts=tuple(contacts), claim=claim)

    def _steps(self, state: State) -> Steps:
        for number, request in enumerate(state.requests):
            if request.at != "done":
                for step, reached in self._request(state, number, request):
                    yield f"request {number}: {step}", reached
        yield from self._time(state)
        for id_, contact in enumerate(state.contacts):
            if contact.stored == "live":
                record = "erased" if "erased_not_removed" in self.rules else "none"
                yield f"contact {id_} is deleted", _contact(state, id_, stored="deleted", record=record)

    def _request(self, state: State, number: int, request: Request) -> Steps:
        if request.at != "start" or request.tries:
            yield "dies", _answered(state, number, "")
        if request.at in ("claimed", "behind") and request.in_time:
            yield "is slow", _request(state, number, in_time=False)
        match request.at:
            case "start" if "checks_first" in self.rules and request.body == "bad":
                yield "is checked", _answered(state, number, "413")
            case "start":
                yield from self._claim(state, number, request)
            case "refused":
                yield from self._read_claim(state, number, request)
            case "claimed" if request.body == "bad":
                yield "is checked", _answered(state, number, "413")
            case "claimed":
                yield from self._read_record(state, number, request)
                yield from self._send(state, number, request)
            case "behind":
                yield from self._behind(state, number, request)
            case "record":
                reached = _contact(state, request.id, record="answer")
                yield "stores the record", _answered(reached, number, "201")

    def _claim(self, state: State, number: int, request: Request) -> Steps:
        id_ = _new_id(state) if "fresh_id" in self.rules else 0
        made = _request(state._replace(claim=Claim(id_, request.body)), number, at="claimed", id=id_)
        if "created_not_read" not in self.rules:
            yield "reads no claim on an old replica, and writes one", made
        if state.claim is None:
            yield "makes the claim", made
            yield "makes the claim, and the answer is lost", _at(made, number, "refused")
        else:
            yield "is refused", _at(state, number, "refused")

    def _read_claim(self, state: State, number: int, request: Request) -> Steps:
        if state.claim is None or "token_of_the_refusal" not in self.rules:
            if request.tries == 0:
                yield "reads no claim", _request(state, number, at="start", tries=1)
            else:
                after = _answered(state, number, "503")
                yield "reads no claim again", after._replace(problem=NO_CLAIM) if state.claim else after
        if state.claim is None:
            return
        id_, body, fresh = state.claim
        if body != request.body:
            after = _answered(state, number, "422")
            yield (
                "reads a claim of another body",
                after._replace(problem=CORRECTED) if body == "bad" else after,
            )
        elif not fresh and "life_left" in self.rules:
            yield "reads a claim that is about to expire", _answered(state, number, "503")
        else:
            yield "reads the claim", _request(state, number, at="claimed", id=id_, sheltered=fresh)

    def _read_record(self, state: State, number: int, request: Request) -> Steps:
        """A read that sees no record proves nothing, and is no step: the batch may be sent at any time."""
        record = state.contacts[request.id].record
        if record != "none":
            yield "reads the record", _answered(state, number, "201 again" if record == "answer" else "410")

    def _send(self, state: State, number: int, request: Request) -> Steps:
        if not request.in_time and "deadline" in self.rules:
            yield "sends nothing any more", _answered(state, number, "503")
            return
        stored = state.contacts[request.id].stored
        if stored in ("live", "deleted"):
            yield "sends the batch, which is refused", _at(state, number, "behind")
            return
        record = "answer" if "one_batch" in self.rules else "none"
        reached = _contact(state, request.id, stored="live", record=record)
        if state.claim is None or state.claim.id != request.id:
            reached = reached._replace(problem=OUTSIDE)
        if stored == "expired":
            reached = reached._replace(problem=CAME_BACK)
        yield "sends the batch, and the answer is lost", _request(reached, number, stored=True)
        is_all = "one_batch" in self.rules
        yield (
            "sends the batch",
            _answered(reached, number, "201") if is_all else _at(reached, number, "record"),
        )

    def _behind(self, state: State, number: int, request: Request) -> Steps:
        contact = state.contacts[request.id]
        if request.stored:
            yield "finds its own event", _answered(state, number, "201")
        elif "loser_answers" not in self.rules:
            yield "gives up", _answered(state, number, "409")._replace(problem=REFUSED)
        elif contact.record == "none":
            after = _answered(state, number, "503")
            yield "finds no record", after._replace(problem=NO_ANSWER) if request.in_time else after
        else:
            answer = "201 again" if contact.record == "answer" else "410"
            yield "finds the record", _answered(state, number, answer)

    def _time(self, state: State) -> Steps:
        claim = state.claim
        if claim is not None and claim.fresh:
            yield "the claim grows old", state._replace(claim=claim._replace(fresh=False))
        elif claim is not None and not any(_shelters(request, claim) for request in state.requests):
            yield "the claim expires", state._replace(claim=None)
        for id_, contact in enumerate(state.contacts):
            if claim is not None and claim.id == id_ and "lives_as_long" in self.rules:
                continue
            if contact.stored == "deleted":
                yield f"tombstone {id_} expires", _contact(state, id_, stored="expired")
            if contact.record != "none":
                yield f"record {id_} expires", _contact(state, id_, record="none")


def _new_id(state: State) -> int:
    known = {each.id for each in (state.claim, *state.requests) if each}
    return min(set(range(len(state.contacts))) - known)


def _without_id(state: State) -> Callable[[Request], tuple[Any, ...]]:
    return lambda request: (request._replace(id=-1), state.contacts[request.id] if request.id >= 0 else ())


def _shelters(request: Request, claim: Claim) -> bool:
    holds = request.at in ("claimed", "behind", "record") and request.id == claim.id
    return holds and request.in_time and request.sheltered


def _request(state: State, number: int, **changes: Any) -> State:
    requests = list(state.requests)
    requests[number] = requests[number]._replace(**changes)
    return state._replace(requests=tuple(requests))


def _at(state: State, number: int, place: str) -> State:
    return _request(state, number, at=place)


def _answered(state: State, number: int, answer: str) -> State:
    """A request that is over distinguishes two states by its answer alone."""
    return _request(
        state, number, at="done", id=-1, tries=0, in_time=True, sheltered=True, stored=False, answer=answer
    )


def _contact(state: State, id_: int, **changes: Any) -> State:
    contacts = list(state.contacts)
    contacts[id_] = contacts[id_]._replace(**changes)
    return state._replace(contacts=tuple(contacts))
