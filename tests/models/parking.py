"""A model of parking: two relays, replays and an operator over one block; every order of their steps is searched.

The feed has the events 1, 2 and 3 of one aggregate, in two pages. The broker refuses 2 and 3 until the reason is
mended. A process may die, or lose an answer, at any step; a page may come again. ``Rule`` has the rules of
``docs/internals/decisions/0009-parking.md``; the code refers to them by the same names.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

PAGES = ((1, 2), (3,))
NEVER_REFUSED = 1


class Rule(Enum):
    """A rule of the protocol. Turned off, the search must find what the rule is for."""

    CONSISTENT_BEFORE_FREE = "consistent-before-free"
    PARK_AT_VERSION = "park-at-version"
    FRESH_READING = "fresh-reading"
    ONE_TRANSACTION = "one-transaction"
    COUNT_CREATES = "count-creates"
    REMEMBER_DISCARDED = "remember-discarded"
    REMEMBER_ACCEPTED = "remember-accepted"
    IDS_SURVIVE = "ids-survive"
    ONLY_IN_THE_WAY = "only-in-the-way"
    SKIP_MARKER = "skip-marker"
    ONE_REPLAY = "one-replay"
    REPLAY_CLEARS_NAME = "replay-clears-name"
    END_AT_ZERO = "end-at-zero"
    TIMER_HEALS = "timer-heals"
    BLOCKED_NEVER_EXPIRES = "blocked-never-expires"


class Block(NamedTuple):
    """As ``cosmos_outbox.outbox.aggregate_block`` has it. ``version`` 0: not stored."""

    version: int = 0
    blocked: bool = False
    in_the_way: int = 0
    accepted: int = 0
    waiting: int = 0
    discarded: frozenset[int] = frozenset()
    claim: int = -1
    """The replay that sends; -1: none does."""


class Relay(NamedTuple):
    """A relay at work on a page."""

    page: int
    reading: Block
    known: frozenset[int]
    """What had been parked and sent when the blocks were read."""
    at: int = 0
    """The next event of the page."""
    refused: int = 0
    sent: int = 0


class Replay(NamedTuple):
    """A replay at work. A negative number is the skip marker in the place of that event."""

    items: tuple[int, ...]
    at: int = 0
    refused: bool = False


class State(NamedTuple):
    """Everything."""

    checkpoint: int = 0
    topic: tuple[int, ...] = ()
    """What subscribers get, in order; the topic drops what it has seen."""
    block: Block = Block()
    parked: frozenset[int] = frozenset()
    relays: tuple[Relay | None, Relay | None] = (None, None)
    replays: tuple[Replay | None, Replay | None] = (None, None)
    settled: frozenset[int] = frozenset()
    """Events that were parked, sent and removed."""
    given_up: frozenset[int] = frozenset()
    mended: bool = False
    pages_left: int = 3
    losses_left: int = 1
    discards_left: int = 1
    replays_left: int = 1
    half_discarded: int = 0
    """With two writes in place of one transaction: an operator is between them."""
    old: tuple[Block, ...] = ()
    """What a lagging replica may show, where no read is consistent."""
    wrong: str = ""


class Parking:
    """The steps of all actors, without the rules that are ``off``. ``pages``: the events, as the feed has them."""

    def __init__(self, off: Rule | None = None, pages: tuple[tuple[int, ...], ...] = PAGES) -> None:
        self._off = off
        self._pages = pages

    def holds(self, rule: Rule) -> bool:
        return self._off is not rule

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Every step that can come next."""
        return ((name, _same(after)) for name, after in self._steps(state))

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.wrong:
            return
        for who in (0, 1):
            yield from self._relay(state, who)
            yield from self._replay(state, who)
        yield from self._operator(state)
        if not self.holds(Rule.BLOCKED_NEVER_EXPIRES) and state.block.blocked:
            yield "the block expires", state._replace(block=Block())

    # The relay

    def _relay(self, state: State, who: int) -> Iterator[tuple[str, State]]:
        relay = state.relays[who]
        if relay is None:
            if state.pages_left:
                left = state._replace(pages_left=state.pages_left - 1)
                for page in range(min(state.checkpoint + 1, len(self._pages))):
                    yield from self._read(left, who, page)
            return
        if state.losses_left and (relay.at or relay.refused):  # before that it has done nothing
            yield f"relay {who} dies", _lost(self._idle(state, who))
        block, events = relay.reading, self._pages[relay.page]
        if relay.refused:
            yield from self._park(state, who, relay, events[relay.at :], new=True)
        elif relay.at == len(events):
            yield (
                f"relay {who} checkpoints page {relay.page}",
                self._idle(state, who)._replace(checkpoint=max(state.checkpoint, relay.page + 1)),
            )
        elif events[relay.at] in block.discarded and self.holds(Rule.REMEMBER_DISCARDED):
            yield (
                f"relay {who} drops {events[relay.at]}",
                self._with(state, who, relay._replace(at=relay.at + 1)),
            )
        elif block.blocked and not self._has_place(block, events[relay.at]):
            yield from self._park(state, who, relay, events[relay.at :], new=False)
        else:
            yield from self._send(state, who, relay, events[relay.at])

    def _read(self, state: State, who: int, page: int) -> Iterator[tuple[str, State]]:
        for block in {state.block, *state.old}:
            relay = Relay(page, block, state.settled)
            yield f"relay {who} reads {block} for page {page}", self._with(state, who, relay)

    def _send(self, state: State, who: int, relay: Relay, event: int) -> Iterator[tuple[str, State]]:
        if self._refuses(state, event):
            if self._has_place(relay.reading, event):
                yield f"relay {who} drops {event}", self._with(state, who, relay._replace(at=relay.at + 1))
            else:
                yield f"the broker refuses {event}", self._with(state, who, relay._replace(refused=event))
            return
        after = self._accepted(state, event)
        sent = relay._replace(at=relay.at + 1, sent=event)
        yield f"relay {who} sends {event}", self._with(after, who, sent)
        if state.losses_left:
            yield f"relay {who} sends {event}, answer lost", _lost(self._idle(after, who))

    def _park(
        self, state: State, who: int, relay: Relay, events: tuple[int, ...], *, new: bool
    ) -> Iterator[tuple[str, State]]:
        before, block = state.block, relay.reading
        if before.version != block.version and self.holds(Rule.PARK_AT_VERSION):
            yield from self._read(self._idle(state, who), who, relay.page)
            return
        created = frozenset(events) - state.parked
        count = block.waiting + (len(created) if self.holds(Rule.COUNT_CREATES) else len(events))
        after = block._replace(version=before.version + 1, blocked=True, waiting=count)
        if new:
            accepted = max(block.accepted, relay.sent)
            after = after._replace(in_the_way=events[0], accepted=accepted)
            if not self.holds(Rule.IDS_SURVIVE):
                after = after._replace(discarded=frozenset())
        parked = self._stored(state, after)._replace(parked=state.parked | created)
        if created & relay.known:
            parked = parked._replace(
                wrong=f"{set(created & relay.known)} was sent by a replay, and is parked again"
            )
        done = relay._replace(at=len(self._pages[relay.page]), refused=0)
        yield f"relay {who} parks {events}", self._with(parked, who, done)
        if state.losses_left:
            yield f"relay {who} parks {events}, answer lost", _lost(self._idle(parked, who))

    # Replays, by an operator or the timer

    def _replay(self, state: State, who: int) -> Iterator[tuple[str, State]]:
        replay, block = state.replays[who], state.block
        if replay is None:
            if block.claim == who:
                yield (
                    f"the claim of replay {who} runs out",
                    self._stored(state, block._replace(claim=-1), same=True),
                )
            elif self._may_claim(state, who):
                yield from self._claim(state, who)
            return
        if state.losses_left:
            yield f"replay {who} dies", _lost(self._replaying(state, who, None))
        if replay.refused or replay.at == len(replay.items):
            yield from self._settle(state, who, replay)
        elif self._refuses(state, replay.items[replay.at]):
            yield (
                f"the broker refuses {replay.items[replay.at]} again",
                self._replaying(state, who, replay._replace(refused=True)),
            )
        else:
            after = self._accepted(state, replay.items[replay.at])
            yield (
                f"replay {who} sends {replay.items[replay.at]}",
                self._replaying(after, who, replay._replace(at=replay.at + 1)),
            )

    def _may_claim(self, state: State, who: int) -> bool:
        block = state.block
        alike = (
            who == 1 and state.replays[0] is None and block.claim != 0
        )  # with the first one, which goes first
        return block.blocked and not alike and (block.claim < 0 or not self.holds(Rule.ONE_REPLAY))

    def _claim(self, state: State, who: int) -> Iterator[tuple[str, State]]:
        block, by_timer = state.block, self.holds(Rule.TIMER_HEALS) and not state.block.in_the_way
        if not by_timer and not state.replays_left:
            return
        left = state if by_timer else state._replace(replays_left=state.replays_left - 1)
        name = 0 if self.holds(Rule.REPLAY_CLEARS_NAME) else block.in_the_way
        claimed = self._stored(left, block._replace(claim=who, in_the_way=name))
        items = tuple(sorted(state.parked, key=abs))
        yield f"replay {who} claims, with {items}", self._replaying(claimed, who, Replay(items))

    def _settle(self, state: State, who: int, replay: Replay) -> Iterator[tuple[str, State]]:
        block, out = state.block, frozenset(replay.items[: replay.at]) & state.parked
        if block.claim != who:
            yield f"replay {who} is too late", self._replaying(state, who, None)
            return
        accepted = max((block.accepted, *map(abs, out)))
        after = block._replace(waiting=block.waiting - len(out), accepted=accepted, claim=-1)
        if replay.refused:
            after = after._replace(in_the_way=replay.items[replay.at])
        elif after.waiting == 0 or not self.holds(Rule.END_AT_ZERO):
            after = after._replace(blocked=False, in_the_way=0)
        settled = self._stored(state, after)._replace(parked=state.parked - out, settled=state.settled | out)
        yield f"replay {who} settles {tuple(out)}", self._replaying(settled, who, None)

    # The operator

    def _operator(self, state: State) -> Iterator[tuple[str, State]]:
        block = state.block
        if not state.mended and block.version:
            yield "the reason is mended", state._replace(mended=True)
        if state.half_discarded:
            after = block._replace(in_the_way=0, discarded=block.discarded | {state.half_discarded})
            yield "the block follows", self._stored(state, after)._replace(half_discarded=0)
            if state.losses_left:
                yield "the operator's process dies", _lost(state._replace(half_discarded=0))
        elif (
            state.discards_left
            and block.blocked
            and not (self.holds(Rule.FRESH_READING) and _may_send(state))
        ):
            one = {block.in_the_way} if self.holds(Rule.ONLY_IN_THE_WAY) else state.parked
            for event in sorted(number for number in one if number in state.parked and number > 0):
                yield f"an operator discards {event}", self._discarded(state, event)

    def _discarded(self, state: State, event: int) -> State:
        block = state.block
        skip_marker = {-event} if self.holds(Rule.SKIP_MARKER) else set()
        after = state._replace(
            parked=(state.parked - {event}) | skip_marker,
            given_up=state.given_up | {event},
            discards_left=state.discards_left - 1,
        )
        if not self.holds(Rule.ONE_TRANSACTION):
            return after._replace(half_discarded=event)
        name = 0 if block.in_the_way == event else block.in_the_way
        changed = block._replace(in_the_way=name, discarded=block.discarded | {event})
        if not skip_marker:
            changed = changed._replace(waiting=block.waiting - 1)
        return self._stored(after, changed)

    # What they share

    def _has_place(self, block: Block, event: int) -> bool:
        return self.holds(Rule.REMEMBER_ACCEPTED) and event <= block.accepted

    def _refuses(self, state: State, event: int) -> bool:
        return event > NEVER_REFUSED and not state.mended

    def _accepted(self, state: State, event: int) -> State:
        if event in state.topic:
            return state
        topic = (*state.topic, event)
        places = list(dict.fromkeys(map(abs, topic)))
        wrong = "" if places == sorted(places) and places[-1] == len(places) else f"subscribers get {topic}"
        if event in state.given_up:
            wrong = f"{event} is sent after it was discarded"
        return state._replace(topic=topic, wrong=wrong)

    def _stored(self, state: State, block: Block, *, same: bool = False) -> State:
        version = state.block.version if same else state.block.version + 1
        old = state.old if self.holds(Rule.CONSISTENT_BEFORE_FREE) else (*state.old, state.block)
        return state._replace(block=block._replace(version=version), old=old)

    def _with(self, state: State, who: int, relay: Relay | None) -> State:
        return state._replace(relays=(relay, state.relays[1]) if who == 0 else (state.relays[0], relay))

    def _idle(self, state: State, who: int) -> State:
        return self._with(state, who, None)

    def _replaying(self, state: State, who: int, replay: Replay | None) -> State:
        return state._replace(replays=(replay, state.replays[1]) if who == 0 else (state.replays[0], replay))

    def wrong(self, state: State) -> str | None:
        """What is wrong with a state; a state without a next step must be one that an operator can go on from."""
        if state.wrong:
            return state.wrong
        if state.block.waiting != len(state.parked):
            return f"{state.block.waiting} are counted, and {set(state.parked)} is parked"
        if any(True for _ in self.steps(state)):
            return None
        block = state.block
        if state.parked and not block.blocked:
            return f"{set(state.parked)} is parked, and nobody will send it"
        if block.blocked and block.in_the_way not in state.parked:
            return "the aggregate is blocked, and nothing that an operator could discard is in the way"
        return None


def _same(state: State) -> State:
    """One state for all that differ in the name of a relay, or in the numbers of versions alone."""
    seen = {0, state.block.version, *(relay.reading.version for relay in state.relays if relay)}
    number = {version: new for new, version in enumerate(sorted(seen | {old.version for old in state.old}))}

    def renumbered(block: Block) -> Block:
        return block._replace(version=number[block.version])

    relays = sorted(
        (relay and relay._replace(reading=renumbered(relay.reading)) for relay in state.relays), key=hash
    )
    old = tuple(dict.fromkeys(map(renumbered, state.old)))
    return state._replace(block=renumbered(state.block), relays=(relays[0], relays[1]), old=old)


def _may_send(state: State) -> bool:
    """Whether a relay may be sending on a reading from before the block."""
    return any(relay and not relay.reading.blocked and not relay.refused for relay in state.relays)


def _lost(state: State) -> State:
    return state._replace(losses_left=state.losses_left - 1)
